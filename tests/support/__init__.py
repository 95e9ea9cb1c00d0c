"""What tests share: feeds, fakes, builders, and processes to talk to."""
