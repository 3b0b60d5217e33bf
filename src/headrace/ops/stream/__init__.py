"""Small operators on a stream: deduplicate, throttle, sample, top, batch, transform."""
