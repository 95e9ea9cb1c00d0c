import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/** Kafka's Admin client, call by call: groups and transactions. */
final class CoordinatorAdminChecks {

    private CoordinatorAdminChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("admin: groups of both protocols", CoordinatorAdminChecks::groups);
        checks.put("admin: offsets of a group", CoordinatorAdminChecks::groupOffsets);
        checks.put("admin: members are removed", CoordinatorAdminChecks::removeMembers);
        checks.put("admin: producers and transactions", CoordinatorAdminChecks::transactions);
        checks.put("admin: producers are fenced", CoordinatorAdminChecks::fence);
        checks.put("admin: a transaction is aborted", CoordinatorAdminChecks::abort);
        return checks;
    }

    private static void groups(Cluster cluster) throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String topic = cluster.topic(2);
            String group = Cluster.name("group");
            try (KafkaConsumer<String, String> consumer =
                    cluster.consumer(
                            "group.id",
                            group,
                            "group.protocol",
                            protocol,
                            "client.id",
                            "describes")) {
                consumer.subscribe(List.of(topic));
                Cluster.pollUntil(
                        "an assignment",
                        List.of(consumer),
                        () -> consumer.assignment().size() == 2);
                Cluster.until(
                        "stable", () -> describe(cluster, group).groupState() == GroupState.STABLE);
                ConsumerGroupDescription description = describe(cluster, group);
                Cluster.same(
                        protocol.equals("classic") ? GroupType.CLASSIC : GroupType.CONSUMER,
                        description.type(),
                        "type");
                var member = description.members().iterator().next();
                Cluster.same("describes", member.clientId(), "client id");
                Cluster.same(
                        2, member.assignment().topicPartitions().size(), "assigned partitions");
                ListGroupsOptions wanted =
                        new ListGroupsOptions()
                                .inGroupStates(Set.of(GroupState.STABLE))
                                .withTypes(Set.of(description.type()));
                Cluster.require(
                        cluster.admin.listGroups(wanted).all().get().stream()
                                .map(GroupListing::groupId)
                                .anyMatch(group::equals),
                        "listed");
                Cluster.fails(
                        GroupNotEmptyException.class,
                        () -> cluster.admin.deleteConsumerGroups(List.of(group)).all().get());
            }
            Cluster.until("empty", () -> describe(cluster, group).groupState() == GroupState.EMPTY);
            cluster.admin.deleteConsumerGroups(List.of(group)).all().get();
            Cluster.require(
                    cluster.admin.listGroups().all().get().stream()
                            .map(GroupListing::groupId)
                            .noneMatch(group::equals),
                    "still listed");
        }
    }

    private static ConsumerGroupDescription describe(Cluster cluster, String group)
            throws Exception {
        return cluster.admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    private static void groupOffsets(Cluster cluster) throws Exception {
        String topic = cluster.topic(2);
        String group = Cluster.name("group");
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition one = new TopicPartition(topic, 1);
        cluster.fill(topic, 2, 10);
        cluster.admin
                .alterConsumerGroupOffsets(
                        group,
                        Map.of(
                                zero,
                                new OffsetAndMetadata(3),
                                one,
                                new OffsetAndMetadata(4, Optional.of(0), "m")))
                .all()
                .get();
        Map<TopicPartition, OffsetAndMetadata> found =
                cluster.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Cluster.same(3L, found.get(zero).offset(), "offset");
        Cluster.same("m", found.get(one).metadata(), "metadata");
        cluster.admin.deleteConsumerGroupOffsets(group, Set.of(zero)).all().get();
        Cluster.same(
                Set.of(one),
                cluster.admin
                        .listConsumerGroupOffsets(group)
                        .partitionsToOffsetAndMetadata()
                        .get()
                        .keySet(),
                "partitions left");
        cluster.admin.deleteConsumerGroups(List.of(group)).all().get();
        Cluster.require(
                cluster.admin
                        .listConsumerGroupOffsets(group)
                        .partitionsToOffsetAndMetadata()
                        .get()
                        .isEmpty(),
                "offsets of a deleted group");
    }

    private static void removeMembers(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String group = Cluster.name("group");
        KafkaConsumer<String, String> consumer =
                cluster.consumer("group.id", group, "group.instance.id", "fixed");
        consumer.subscribe(List.of(topic));
        Cluster.pollUntil(
                "an assignment", List.of(consumer), () -> !consumer.assignment().isEmpty());
        consumer.close();
        Cluster.same(
                1,
                describe(cluster, group).members().size(),
                "a static member stays when its client closes");
        cluster.admin
                .removeMembersFromConsumerGroup(
                        group,
                        new RemoveMembersFromConsumerGroupOptions(
                                List.of(new MemberToRemove("fixed"))))
                .all()
                .get();
        Cluster.until("no member", () -> describe(cluster, group).members().isEmpty());
    }

    private static void transactions(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String id = Cluster.name("tx");
        try (KafkaProducer<String, String> producer = cluster.producer("transactional.id", id)) {
            producer.initTransactions();
            Cluster.same(
                    TransactionState.EMPTY,
                    cluster.admin.describeTransactions(List.of(id)).all().get().get(id).state(),
                    "state before");
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v")).get();
            var description = cluster.admin.describeTransactions(List.of(id)).all().get().get(id);
            Cluster.same(TransactionState.ONGOING, description.state(), "state");
            Cluster.same(
                    Set.of(new TopicPartition(topic, 0)),
                    description.topicPartitions(),
                    "partitions");
            Cluster.require(
                    cluster.admin.listTransactions().all().get().stream()
                            .anyMatch(
                                    row ->
                                            row.transactionalId().equals(id)
                                                    && row.producerId()
                                                            == description.producerId()),
                    "listed");
            ProducerState state =
                    cluster.admin
                            .describeProducers(List.of(new TopicPartition(topic, 0)))
                            .all()
                            .get()
                            .get(new TopicPartition(topic, 0))
                            .activeProducers()
                            .get(0);
            Cluster.same(description.producerId(), state.producerId(), "producer id");
            Cluster.same(0L, state.currentTransactionStartOffset().getAsLong(), "start offset");
            producer.commitTransaction();
            Cluster.until(
                    "committed",
                    () ->
                            cluster.admin
                                            .describeTransactions(List.of(id))
                                            .all()
                                            .get()
                                            .get(id)
                                            .state()
                                    == TransactionState.COMPLETE_COMMIT);
        }
    }

    private static void fence(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String id = Cluster.name("tx");
        try (KafkaProducer<String, String> producer = cluster.producer("transactional.id", id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v")).get();
            cluster.admin.fenceProducers(List.of(id)).all().get();
            Throwable raised =
                    Cluster.failure(
                            () -> {
                                producer.send(new ProducerRecord<>(topic, "v")).get();
                                producer.commitTransaction();
                                return null;
                            });
            Cluster.require(
                    raised instanceof ProducerFencedException
                            || raised instanceof InvalidProducerEpochException,
                    "fenced: " + raised);
        }
    }

    private static void abort(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer =
                cluster.producer("transactional.id", Cluster.name("tx"))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v")).get();
            ProducerState state =
                    cluster.admin
                            .describeProducers(List.of(partition))
                            .all()
                            .get()
                            .get(partition)
                            .activeProducers()
                            .get(0);
            cluster.admin
                    .abortTransaction(
                            new AbortTransactionSpec(
                                    partition,
                                    state.producerId(),
                                    (short) state.producerEpoch(),
                                    state.coordinatorEpoch().orElse(0)))
                    .all()
                    .get();
            try (KafkaConsumer<String, String> consumer =
                    cluster.consumer("isolation.level", "read_committed")) {
                Cluster.until(
                        "the last stable offset moves",
                        () -> consumer.endOffsets(List.of(partition)).get(partition) == 2);
                consumer.assign(List.of(partition));
                Cluster.require(
                        consumer.poll(Duration.ofMillis(200)).isEmpty(),
                        "an aborted record was read");
            }
        }
    }
}
