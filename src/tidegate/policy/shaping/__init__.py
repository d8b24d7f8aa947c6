"""What of a request is changed before it is sent."""
