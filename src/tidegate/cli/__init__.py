"""The command line. Read `main` for the commands and their exit codes."""
