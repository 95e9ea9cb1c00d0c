"""Changes a setting of a running broker as an administrator does."""

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

DEADLINE_SECONDS = 60


def set_on_broker(bootstrap: str, name: str, value: str, broker_id: str = "1") -> None:
    """Set it for one broker, or without an id for all. Raises KafkaException when it is refused."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, broker_id, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_SECONDS)
