"""APIs of features that this broker does not have: each answers as a Kafka without it would."""
