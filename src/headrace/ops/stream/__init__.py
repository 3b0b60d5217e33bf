"""Small operators on a stream: which rows go on, the best of them, rows packed together."""
