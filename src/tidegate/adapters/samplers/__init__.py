"""What is measured beside requests, about once a second, in the recorder process: GPUs, model servers, the local engine's process."""
