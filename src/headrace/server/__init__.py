"""Jobs as a service: a server that starts, watches and ends the processes of jobs.

A job is a process of its own (`headrace run`) that commits manifests into its folder; that folder
is the truth about it. Nothing of a user's program runs in the server's process.
"""
