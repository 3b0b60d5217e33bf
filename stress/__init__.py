"""The embedded log under kills, errors, full disks, damage and power cuts: `make logstress`."""
