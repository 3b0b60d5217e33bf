"""The doors to what is outside: databases, lakes, brokers, servers; one module for each library.

A module here knows its library and nothing of inputs, outputs or epochs. It imports the library
when it is first used: all of them are extras.
"""
