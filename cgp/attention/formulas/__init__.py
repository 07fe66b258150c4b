"""Formulas of posteriors that only attention uses: pure functions of tensors."""
