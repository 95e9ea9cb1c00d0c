"""UpdateFeatures: changes the finalized levels of features (KIP-584). Served by the controller."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.cluster.controller_access import announce, controller_of, request_id_of
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.features import FeatureUpdate, UpgradeType
from rotunda.broker.protocol.error_codes import text_of
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work


def handle_update_features(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return one outcome for all updates: all are made or none. Below version 2 it is repeated for each feature."""
    # By name, as in Kafka: of two updates of one feature the last counts.
    by_name: dict[str, FeatureUpdate] = {}
    yield from each_of(body.feature_updates, lambda each: by_name.update({each.feature: _update(request, each)}))
    updates = list(by_name.values())
    validate_only = body.validate_only
    try:
        controller_of(broker).update_features(updates, validate_only=validate_only, request=request_id_of(request))
    except ApiError as error:
        message = "The update failed for all features since the following feature had an error: "
        message += error.message or text_of(error.code)
        return {"error_code": error.code, "error_message": message}
    announce(broker)
    return {"results": [{"feature": update.name} for update in updates]}


def _update(request: Request, asked: Any) -> FeatureUpdate:
    """Return an update as requested; version 0 only has whether a downgrade is allowed."""
    upgrade_type = asked.upgrade_type
    if request.api_version == 0:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)
