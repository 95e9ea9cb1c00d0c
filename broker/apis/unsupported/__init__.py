"""APIs whose subject this broker has not: each answers as a Kafka without it would."""
