"""What a handler does for the groups and transactional ids that it owns."""
