"""Messages of all APIs by the schemas of kio, for those that have no codec of their own. Pure."""
