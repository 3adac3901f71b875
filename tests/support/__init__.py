"""What several test folders share: waiting, clocks, fakes, builders, real servers. Import it from here only."""
