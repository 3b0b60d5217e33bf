"""The two small programs whose start is measured: each is what a user would type and run.

They take the folder to read and the folder to write. With STAMPS in the environment they
also say, in that file, when each phase of the start was over.
"""
