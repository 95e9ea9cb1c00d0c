import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/** Kafka's Admin client, call by call: topics, configs, the cluster. */
final class AdminChecks {

    private AdminChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("admin: topics, partitions, delete records", AdminChecks::topics);
        checks.put("admin: topic and broker configs", AdminChecks::configs);
        checks.put("admin: config resources", AdminChecks::resources);
        checks.put("admin: client metrics subscriptions", AdminChecks::clientMetrics);
        checks.put("admin: metadata.version is a feature", AdminChecks::metadataVersion);
        checks.put("admin: offsets by isolation level and by kind", AdminChecks::offsets);
        checks.put("admin: cluster, quorum, features, log dirs", AdminChecks::cluster);
        checks.put("admin: leader election", AdminChecks::election);
        checks.put("admin: reassignments", AdminChecks::reassignments);
        checks.put("admin: client quotas", AdminChecks::quotas);
        checks.put("admin: ACLs are not enabled", AdminChecks::acls);
        return checks;
    }

    private static void topics(Cluster cluster) throws Exception {
        Admin admin = cluster.admin;
        String topic = cluster.topic(1);
        Cluster.require(admin.listTopics().names().get().contains(topic), "listed");
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        Cluster.same(
                3,
                admin.describeTopics(List.of(topic))
                        .allTopicNames()
                        .get()
                        .get(topic)
                        .partitions()
                        .size(),
                "partitions");
        cluster.fill(topic, 3, 30);
        TopicPartition partition = new TopicPartition(topic, 0);
        long low =
                admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)))
                        .lowWatermarks()
                        .get(partition)
                        .get()
                        .lowWatermark();
        Cluster.same(4L, low, "low watermark");
        admin.deleteTopics(List.of(topic)).all().get();
        Cluster.require(!admin.listTopics().names().get().contains(topic), "still listed");
    }

    private static void configs(Cluster cluster) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, cluster.topic(1));
        Config before = cluster.admin.describeConfigs(List.of(topic)).all().get().get(topic);
        Cluster.require(
                before.entries().size() >= 25,
                "only " + before.entries().size() + " topic configs");
        alter(cluster, topic, "retention.ms", "123456", AlterConfigOp.OpType.SET);
        ConfigEntry entry =
                cluster.admin
                        .describeConfigs(List.of(topic))
                        .all()
                        .get()
                        .get(topic)
                        .get("retention.ms");
        Cluster.same("123456", entry.value(), "retention.ms");
        Cluster.same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, entry.source(), "source");
        alter(cluster, topic, "retention.ms", "", AlterConfigOp.OpType.DELETE);
        Cluster.fails(
                InvalidConfigurationException.class,
                () -> alter(cluster, topic, "no.such.key", "1", AlterConfigOp.OpType.SET));
        String node = "" + cluster.admin.describeCluster().nodes().get().iterator().next().id();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
        Cluster.require(
                cluster.admin
                                .describeConfigs(List.of(broker))
                                .all()
                                .get()
                                .get(broker)
                                .entries()
                                .size()
                        > 50,
                "broker configs");
        alter(cluster, broker, "message.max.bytes", "2000000", AlterConfigOp.OpType.SET);
        Cluster.until(
                "the broker's setting",
                () ->
                        cluster.admin
                                .describeConfigs(List.of(broker))
                                .all()
                                .get()
                                .get(broker)
                                .get("message.max.bytes")
                                .value()
                                .equals("2000000"));
        alter(cluster, broker, "message.max.bytes", "", AlterConfigOp.OpType.DELETE);
    }

    private static Object alter(
            Cluster cluster,
            ConfigResource resource,
            String key,
            String value,
            AlterConfigOp.OpType how)
            throws Exception {
        Collection<AlterConfigOp> change =
                List.of(new AlterConfigOp(new ConfigEntry(key, value), how));
        return cluster.admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
    }

    private static void clientMetrics(Cluster cluster) throws Exception {
        String name = Cluster.name("metrics");
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, name);
        alter(cluster, metrics, "interval.ms", "60000", AlterConfigOp.OpType.SET);
        Cluster.until(
                "client-metrics resource is listed",
                () ->
                        cluster.admin
                                .listConfigResources(
                                        Set.of(ConfigResource.Type.CLIENT_METRICS),
                                        new org.apache.kafka.clients.admin
                                                .ListConfigResourcesOptions())
                                .all()
                                .get()
                                .contains(metrics));
        alter(cluster, metrics, "interval.ms", "", AlterConfigOp.OpType.DELETE);
    }

    private static void resources(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        Cluster.until(
                "a topic is a resource",
                () ->
                        cluster.admin
                                .listConfigResources()
                                .all()
                                .get()
                                .contains(new ConfigResource(ConfigResource.Type.TOPIC, topic)));
    }

    private static void offsets(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = cluster.producer()) {
            for (long time : new long[] {1000, 3000, 2000}) {
                producer.send(new ProducerRecord<>(topic, 0, time, null, "v")).get();
            }
        }
        Map<OffsetSpec, Long> expected =
                Map.of(
                        OffsetSpec.earliest(),
                        0L,
                        OffsetSpec.latest(),
                        3L,
                        OffsetSpec.maxTimestamp(),
                        1L,
                        OffsetSpec.forTimestamp(1500),
                        1L,
                        OffsetSpec.earliestLocal(),
                        0L);
        for (Map.Entry<OffsetSpec, Long> entry : expected.entrySet()) {
            long found =
                    cluster.admin
                            .listOffsets(Map.of(partition, entry.getKey()))
                            .all()
                            .get()
                            .get(partition)
                            .offset();
            Cluster.same(entry.getValue(), found, entry.getKey().getClass().getSimpleName());
        }
        var committed =
                new ListOffsetsOptions(org.apache.kafka.common.IsolationLevel.READ_COMMITTED);
        Cluster.same(
                3L,
                cluster.admin
                        .listOffsets(Map.of(partition, OffsetSpec.latest()), committed)
                        .all()
                        .get()
                        .get(partition)
                        .offset(),
                "read_committed");
    }

    private static void cluster(Cluster cluster) throws Exception {
        Admin admin = cluster.admin;
        Cluster.require(admin.describeCluster().clusterId().get().length() == 22, "cluster id");
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        Cluster.same(node, admin.describeCluster().controller().get().id(), "controller");
        Cluster.same(
                node,
                admin.describeMetadataQuorum().quorumInfo().get().leaderId(),
                "quorum leader");
        var features = admin.describeFeatures().featureMetadata().get();
        for (String feature : List.of("group.version", "transaction.version")) {
            Cluster.require(
                    features.finalizedFeatures().containsKey(feature),
                    feature + " is not finalized: " + features.finalizedFeatures());
        }
        Cluster.same(
                (short) 2,
                features.finalizedFeatures().get("transaction.version").maxVersionLevel(),
                "transaction.version");
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        var directories = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        Cluster.require(
                directories.values().stream()
                        .anyMatch(
                                one ->
                                        one.replicaInfos().containsKey(new TopicPartition(topic, 0))
                                                && one.replicaInfos()
                                                                .get(new TopicPartition(topic, 0))
                                                                .size()
                                                        > 0
                                                && one.totalBytes().getAsLong() > 0),
                "log dir with sizes");
        admin.updateFeatures(
                        Map.of(
                                "transaction.version",
                                new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE)),
                        new UpdateFeaturesOptions().validateOnly(true))
                .all()
                .get();
    }

    private static void metadataVersion(Cluster cluster) throws Exception {
        var features = cluster.admin.describeFeatures().featureMetadata().get();
        Cluster.require(
                features.finalizedFeatures().containsKey("metadata.version"),
                "finalized are " + features.finalizedFeatures());
    }

    private static void election(Cluster cluster) throws Exception {
        TopicPartition partition = new TopicPartition(cluster.topic(1), 0);
        Optional<Throwable> found =
                cluster.admin
                        .electLeaders(ElectionType.PREFERRED, Set.of(partition))
                        .partitions()
                        .get()
                        .get(partition);
        Cluster.require(
                found.isPresent() && found.get() instanceof ElectionNotNeededException,
                "preferred: " + found);
    }

    private static void reassignments(Cluster cluster) throws Exception {
        TopicPartition partition = new TopicPartition(cluster.topic(1), 0);
        int node = cluster.admin.describeCluster().nodes().get().iterator().next().id();
        Cluster.require(
                cluster.admin.listPartitionReassignments().reassignments().get().isEmpty(),
                "one under way");
        cluster.admin
                .alterPartitionReassignments(
                        Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(node)))))
                .all()
                .get();
        Cluster.fails(
                InvalidReplicaAssignmentException.class,
                () ->
                        cluster.admin
                                .alterPartitionReassignments(
                                        Map.of(
                                                partition,
                                                Optional.of(
                                                        new NewPartitionReassignment(
                                                                List.of(node, 77)))))
                                .all()
                                .get());
        Cluster.fails(
                NoReassignmentInProgressException.class,
                () ->
                        cluster.admin
                                .alterPartitionReassignments(Map.of(partition, Optional.empty()))
                                .all()
                                .get());
    }

    private static void quotas(Cluster cluster) throws Exception {
        String client = Cluster.name("client");
        ClientQuotaEntity entity =
                new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, client));
        cluster.admin
                .alterClientQuotas(
                        List.of(
                                new ClientQuotaAlteration(
                                        entity,
                                        List.of(
                                                new ClientQuotaAlteration.Op(
                                                        "producer_byte_rate", 1e9)))))
                .all()
                .get();
        ClientQuotaFilter filter =
                ClientQuotaFilter.containsOnly(
                        List.of(
                                ClientQuotaFilterComponent.ofEntity(
                                        ClientQuotaEntity.CLIENT_ID, client)));
        Cluster.until(
                "the quota is described",
                () ->
                        Map.of(entity, Map.of("producer_byte_rate", 1e9))
                                .equals(
                                        cluster.admin
                                                .describeClientQuotas(filter)
                                                .entities()
                                                .get()));
        cluster.admin
                .alterClientQuotas(
                        List.of(
                                new ClientQuotaAlteration(
                                        entity,
                                        List.of(
                                                new ClientQuotaAlteration.Op(
                                                        "producer_byte_rate", null)))))
                .all()
                .get();
        Cluster.until(
                "the quota is gone",
                () -> cluster.admin.describeClientQuotas(filter).entities().get().isEmpty());
    }

    private static void acls(Cluster cluster) throws Exception {
        Cluster.fails(
                SecurityDisabledException.class,
                () -> cluster.admin.describeAcls(AclBindingFilter.ANY).values().get());
    }
}
