"""Share groups (KIP-932): members, subscriptions and assignments. Deliveries are in `share_state`."""
