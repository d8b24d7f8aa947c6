"""A conformance suite for gateways: what a client must see for each way in which an upstream can misbehave."""
