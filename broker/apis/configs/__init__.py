"""Settings and quotas: described and altered."""
