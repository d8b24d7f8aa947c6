"""The processes of one machine: a supervisor, its workers, and what they say to each other.

Read `supervisor` for the order of things, `worker` for the other end, `control` for the messages between them.
"""
