"""The outside world behind the ports: databases, files, processes, tokenizers. Only `wiring` names them."""
