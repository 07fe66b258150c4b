"""What a task asks: how outputs and labels become rows, and which scores they have."""
