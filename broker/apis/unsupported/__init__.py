"""APIs of features that this broker does not have: each responds as a Kafka without it would."""
