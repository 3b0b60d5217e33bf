"""`make demo`: the fire alarm, fed by simulated sensors and shown live."""
