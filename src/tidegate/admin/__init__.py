"""The admin port: metrics, health, keys. Read `app` for its paths, `view` for what it knows of the node."""
