"""The data plane's HTTP/1.1: a server protocol and an upstream client pool on uvloop and httptools (llhttp)."""
