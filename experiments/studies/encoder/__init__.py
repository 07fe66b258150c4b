"""A pretrained sentence encoder fine-tuned on intents with Gaussian-process attention in its last layers."""
