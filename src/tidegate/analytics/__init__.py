"""What is kept of finished requests to be asked about, and the questions: no I/O but what a store is handed to do."""
