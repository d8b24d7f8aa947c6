"""The local model: llama.cpp in a child process of its own, an ordinary upstream to everything else.

`supervisor` keeps it alive and warm, `process` is the child's main, `doctor` measures it once and says what is wrong.
"""
