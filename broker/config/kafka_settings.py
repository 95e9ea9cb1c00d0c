"""The settings of a Kafka 4.4 broker that Rotunda does not implement: type, whether dynamic, default.

As Kafka returns them in DescribeConfigs, since tools expect them. Facts only; `broker.config.kafka` has their meaning
here.
"""

from __future__ import annotations

#: One per line: name, type, fixed or dynamic, default ('' is the empty text), and the range of some that are stored
#: here.
TABLE = """
add.partitions.to.txn.retry.backoff.max.ms INT fixed 100 0..
add.partitions.to.txn.retry.backoff.ms INT fixed 20 1..
alter.config.policy.class.name CLASS fixed null
alter.log.dirs.replication.quota.window.num INT fixed 11 1..
alter.log.dirs.replication.quota.window.size.seconds INT fixed 1 1..
auto.leader.rebalance.enable BOOLEAN fixed true
background.threads INT dynamic 10 1..
broker.heartbeat.interval.ms INT fixed 2000
broker.session.timeout.ms INT fixed 9000
client.quota.callback.class CLASS fixed null
config.providers LIST dynamic ''
controlled.shutdown.enable BOOLEAN fixed true
controller.quorum.append.linger.ms INT fixed 25 0..
controller.quorum.auto.join.enable BOOLEAN fixed false
controller.quorum.bootstrap.servers LIST fixed ''
controller.quorum.election.backoff.max.ms INT fixed 1000 0..
controller.quorum.election.timeout.ms INT fixed 1000 0..
controller.quorum.fetch.max.bytes INT fixed 1048576 1..
controller.quorum.fetch.snapshot.max.bytes INT fixed 1048576 1..
controller.quorum.fetch.timeout.ms INT fixed 2000 0..
controller.quorum.request.timeout.ms INT fixed 2000 0..
controller.quorum.retry.backoff.ms INT fixed 20 0..
controller.quorum.voters LIST fixed ''
controller.socket.timeout.ms INT fixed 30000
cordoned.log.dirs LIST dynamic ''
create.topic.policy.class.name CLASS fixed null
delegation.token.expiry.check.interval.ms LONG fixed 3600000 1..
delegation.token.expiry.time.ms LONG fixed 86400000 1..
delegation.token.max.lifetime.ms LONG fixed 604800000 1..
delegation.token.secret.key PASSWORD fixed null
delete.records.purgatory.purge.interval.requests INT fixed 1
early.start.listeners LIST fixed null
fetch.purgatory.purge.interval.requests INT fixed 1000
follower.fetch.last.tiered.offset.enable BOOLEAN dynamic false
group.coordinator.background.threads INT fixed 2 1..
group.coordinator.cached.buffer.max.bytes INT dynamic 1048588 524288..
group.coordinator.threads INT fixed 4 1..
group.streams.assignment.interval.ms INT dynamic 1000 0..
group.streams.assignors LIST fixed sticky
group.streams.heartbeat.interval.ms INT fixed 5000 1..
group.streams.initial.rebalance.delay.ms INT fixed 3000 0..
group.streams.max.assignment.interval.ms INT fixed 15000 0..
group.streams.max.heartbeat.interval.ms INT fixed 15000 1..
group.streams.max.session.timeout.ms INT fixed 60000 1..
group.streams.max.size INT fixed 2147483647 1..
group.streams.max.standby.replicas INT fixed 2 0..
group.streams.min.assignment.interval.ms INT fixed 0 0..
group.streams.min.heartbeat.interval.ms INT fixed 5000 1..
group.streams.min.session.timeout.ms INT fixed 45000 1..
group.streams.num.standby.replicas INT fixed 0 0..
group.streams.rack.aware.assignment.tags LIST fixed ''
group.streams.session.timeout.ms INT fixed 45000 1..
group.streams.topology.description.plugin.class CLASS fixed null
initial.broker.registration.timeout.ms INT fixed 60000
kafka.metrics.polling.interval.secs INT fixed 10 1..
kafka.metrics.reporters LIST fixed ''
leader.imbalance.check.interval.seconds LONG fixed 300 1..
log.cleaner.io.buffer.load.factor DOUBLE dynamic 0.9
log.cleaner.io.buffer.size INT dynamic 524288 0..
log.cleaner.threads INT dynamic 1 0..
log.dir.failure.timeout.ms LONG fixed 30000 1..
log.flush.offset.checkpoint.interval.ms INT fixed 60000 0..
log.flush.start.offset.checkpoint.interval.ms INT fixed 60000 0..
log.local.retention.bytes LONG dynamic -2 -2..
log.local.retention.ms LONG dynamic -2 -2..
log.remote.copy.lag.bytes LONG dynamic -1 -1..
log.remote.copy.lag.ms LONG dynamic 0 -1..
max.request.partition.size.limit INT fixed 2000 1..
metadata.log.dir STRING fixed null
metadata.log.max.record.bytes.between.snapshots LONG fixed 20971520 1..
metadata.log.max.snapshot.interval.ms LONG fixed 3600000 0..
metadata.log.segment.bytes INT fixed 1073741824 8388608..
metadata.log.segment.ms LONG fixed 604800000
metadata.max.idle.interval.ms INT fixed 500 0..
metadata.max.retention.bytes LONG fixed 104857600
metadata.max.retention.ms LONG fixed 604800000
metric.reporters LIST dynamic org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples INT fixed 2 1..
metrics.recording.level STRING fixed INFO
metrics.sample.window.ms LONG fixed 30000 1..
num.recovery.threads.per.data.dir INT dynamic 2 1..
num.replica.alter.log.dirs.threads INT fixed null
num.replica.fetchers INT dynamic 1 1..
offsets.commit.timeout.ms INT fixed 5000 1..
offsets.load.buffer.size INT fixed 5242880 1..
offsets.topic.compression.codec INT fixed 0
principal.builder.class CLASS dynamic org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
producer.purgatory.purge.interval.requests INT fixed 1000
queued.max.requests INT fixed 500 1..
remote.fetch.max.wait.ms INT dynamic 500 1..
remote.list.offsets.request.timeout.ms LONG dynamic 30000 1..
remote.log.index.file.cache.total.size.bytes LONG dynamic 1073741824 1..
remote.log.manager.copier.thread.pool.size INT dynamic 10 1..
remote.log.manager.copy.max.bytes.per.second LONG dynamic 9223372036854775807 1..
remote.log.manager.copy.quota.window.num INT fixed 11 1..
remote.log.manager.copy.quota.window.size.seconds INT fixed 1 1..
remote.log.manager.expiration.thread.pool.size INT dynamic 10 1..
remote.log.manager.fetch.max.bytes.per.second LONG dynamic 9223372036854775807 1..
remote.log.manager.fetch.quota.window.num INT fixed 11 1..
remote.log.manager.fetch.quota.window.size.seconds INT fixed 1 1..
remote.log.manager.follower.thread.pool.size INT dynamic 2 1..
remote.log.manager.task.interval.ms LONG fixed 30000 1..
remote.log.manager.thread.pool.size INT fixed 2 1..
remote.log.metadata.custom.metadata.max.bytes INT fixed 128 0..
remote.log.metadata.manager.class.name STRING fixed \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING fixed null
remote.log.metadata.manager.impl.prefix STRING fixed rlmm.config.
remote.log.metadata.manager.listener.name STRING fixed null
remote.log.reader.max.pending.tasks INT fixed 100 1..
remote.log.reader.threads INT dynamic 10 1..
remote.log.storage.manager.class.name STRING fixed null
remote.log.storage.manager.class.path STRING fixed null
remote.log.storage.manager.impl.prefix STRING fixed rsm.config.
remote.log.storage.system.enable BOOLEAN fixed false
replica.fetch.backoff.ms INT fixed 1000 0..
replica.fetch.max.bytes INT fixed 1048576 0..
replica.fetch.min.bytes INT fixed 1
replica.fetch.response.max.bytes INT fixed 10485760 0..
replica.fetch.wait.max.ms INT fixed 500
replica.high.watermark.checkpoint.interval.ms LONG fixed 5000
replica.lag.time.max.ms LONG fixed 30000
replica.selector.class STRING fixed null
replica.socket.receive.buffer.bytes INT fixed 65536
replica.socket.timeout.ms INT fixed 30000
replication.quota.window.num INT fixed 11 1..
replication.quota.window.size.seconds INT fixed 1 1..
request.timeout.ms INT fixed 30000
sasl.client.callback.handler.class CLASS fixed null
sasl.jaas.config PASSWORD dynamic null
sasl.kerberos.kinit.cmd STRING dynamic /usr/bin/kinit
sasl.kerberos.min.time.before.relogin LONG dynamic 60000
sasl.kerberos.principal.to.local.rules LIST dynamic DEFAULT
sasl.kerberos.service.name STRING dynamic null
sasl.kerberos.ticket.renew.jitter DOUBLE dynamic 0.05
sasl.kerberos.ticket.renew.window.factor DOUBLE dynamic 0.8
sasl.login.callback.handler.class CLASS fixed null
sasl.login.class CLASS fixed null
sasl.login.connect.timeout.ms INT fixed null
sasl.login.read.timeout.ms INT fixed null
sasl.login.refresh.buffer.seconds SHORT dynamic 300
sasl.login.refresh.min.period.seconds SHORT dynamic 60
sasl.login.refresh.window.factor DOUBLE dynamic 0.8
sasl.login.refresh.window.jitter DOUBLE dynamic 0.05
sasl.login.retry.backoff.max.ms LONG fixed 10000
sasl.login.retry.backoff.ms LONG fixed 100
sasl.mechanism.controller.protocol STRING fixed GSSAPI
sasl.mechanism.inter.broker.protocol STRING dynamic GSSAPI
sasl.oauthbearer.allow.unverified.audience BOOLEAN fixed false
sasl.oauthbearer.allow.unverified.issuer BOOLEAN fixed false
sasl.oauthbearer.assertion.algorithm STRING fixed RS256
sasl.oauthbearer.assertion.claim.aud STRING fixed null
sasl.oauthbearer.assertion.claim.exp.seconds INT fixed 300 0..86400
sasl.oauthbearer.assertion.claim.iss STRING fixed null
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN fixed false
sasl.oauthbearer.assertion.claim.nbf.seconds INT fixed 60 0..3600
sasl.oauthbearer.assertion.claim.sub STRING fixed null
sasl.oauthbearer.assertion.file STRING fixed null
sasl.oauthbearer.assertion.private.key.file STRING fixed null
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD fixed null
sasl.oauthbearer.assertion.template.file STRING fixed null
sasl.oauthbearer.client.credentials.client.id STRING fixed null
sasl.oauthbearer.client.credentials.client.secret PASSWORD fixed null
sasl.oauthbearer.jwt.retriever.class CLASS fixed org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class CLASS fixed org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope STRING fixed null
sasl.oauthbearer.token.endpoint.url STRING fixed null
sasl.server.callback.handler.class CLASS fixed null
security.inter.broker.protocol STRING fixed PLAINTEXT
security.providers STRING fixed null
share.coordinator.append.linger.ms INT fixed -1 -1..
share.coordinator.cached.buffer.max.bytes INT dynamic 1048588 524288..
share.coordinator.load.buffer.size INT fixed 5242880 1..
share.coordinator.state.topic.compression.codec INT fixed 0
share.coordinator.threads INT fixed 1 1..
share.coordinator.write.timeout.ms INT fixed 5000 1..
share.fetch.purgatory.purge.interval.requests INT fixed 1000
socket.connection.setup.timeout.max.ms LONG fixed 30000
socket.connection.setup.timeout.ms LONG fixed 10000
ssl.allow.dn.changes BOOLEAN fixed false
ssl.allow.san.changes BOOLEAN fixed false
ssl.endpoint.identification.algorithm STRING dynamic https
ssl.engine.factory.class CLASS dynamic null
ssl.keymanager.algorithm STRING dynamic SunX509
ssl.protocol STRING dynamic TLSv1.3
ssl.provider STRING dynamic null
ssl.secure.random.implementation STRING dynamic null
ssl.trustmanager.algorithm STRING dynamic PKIX
transaction.state.log.load.buffer.size INT fixed 5242880 1..
transaction.two.phase.commit.enable BOOLEAN fixed false
"""
