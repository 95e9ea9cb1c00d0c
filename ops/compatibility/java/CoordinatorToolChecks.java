import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Kafka's command-line tools, by the names of their scripts: groups and transactions. */
final class CoordinatorToolChecks {
    private static final String TOOLS = "org.apache.kafka.tools.";
    private static final String GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand";
    private static final String TRANSACTIONS = TOOLS + "TransactionsCommand";

    private CoordinatorToolChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put(
                "kafka-console-consumer: formatters of the internal topics",
                CoordinatorToolChecks::formatters);
        checks.put("kafka-consumer-groups: list, describe", CoordinatorToolChecks::describeGroups);
        checks.put(
                "kafka-consumer-groups: reset, delete offsets, delete",
                CoordinatorToolChecks::resetGroups);
        checks.put("kafka-groups", CoordinatorToolChecks::groups);
        checks.put(
                "kafka-transactions: list, describe, producers",
                CoordinatorToolChecks::transactions);
        checks.put("kafka-transactions: find-hanging, abort", CoordinatorToolChecks::hanging);
        checks.put("kafka-verifiable-producer and -consumer", CoordinatorToolChecks::verifiable);
        return checks;
    }

    private static void formatters(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String group = Cluster.name("group");
        commit(cluster, topic, group, "classic");
        try (KafkaProducer<String, String> producer = cluster.producer("transactional.id", group)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v")).get();
            producer.commitTransaction();
        }
        String main = TOOLS + "consumer.ConsoleConsumer";
        String formatters = TOOLS + "consumer.";
        ToolChecks.contains(
                Tool.run(
                        main,
                        ToolChecks.at(
                                cluster,
                                "--topic",
                                "__consumer_offsets",
                                "--from-beginning",
                                "--timeout-ms",
                                "3000",
                                "--formatter",
                                formatters + "OffsetsMessageFormatter")),
                group);
        ToolChecks.contains(
                Tool.run(
                        main,
                        ToolChecks.at(
                                cluster,
                                "--topic",
                                "__consumer_offsets",
                                "--from-beginning",
                                "--timeout-ms",
                                "3000",
                                "--formatter",
                                formatters + "GroupMetadataMessageFormatter")),
                group);
        ToolChecks.contains(
                Tool.run(
                        main,
                        ToolChecks.at(
                                cluster,
                                "--topic",
                                "__transaction_state",
                                "--from-beginning",
                                "--timeout-ms",
                                "3000",
                                "--formatter",
                                formatters + "TransactionLogMessageFormatter")),
                group);
    }

    /** Ten records, of which the group has committed all but what lies behind the poll. */
    private static void commit(Cluster cluster, String topic, String group, String protocol)
            throws Exception {
        cluster.fill(topic, 1, 10);
        try (KafkaConsumer<String, String> consumer =
                cluster.consumer("group.id", group, "group.protocol", protocol)) {
            consumer.subscribe(List.of(topic));
            Cluster.read(consumer, 10);
            consumer.commitSync();
        }
        cluster.fill(topic, 1, 5);
    }

    private static void describeGroups(Cluster cluster) throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String topic = cluster.topic(1);
            String group = Cluster.name("group");
            commit(cluster, topic, group, protocol);
            ToolChecks.contains(Tool.run(GROUPS, ToolChecks.at(cluster, "--list")), group);
            Cluster.until(
                    "empty group",
                    () ->
                            Tool.run(
                                            GROUPS,
                                            ToolChecks.at(
                                                    cluster,
                                                    "--describe",
                                                    "--group",
                                                    group,
                                                    "--state"))
                                    .contains("Empty"));
            ToolChecks.contains(
                    Tool.run(GROUPS, ToolChecks.at(cluster, "--describe", "--group", group)),
                    topic + "\\s+0\\s+10\\s+15\\s+5");
            try (KafkaConsumer<String, String> consumer =
                    cluster.consumer(
                            "group.id",
                            group,
                            "group.protocol",
                            protocol,
                            "client.id",
                            "seen-by-tool")) {
                consumer.subscribe(List.of(topic));
                Cluster.pollUntil(
                        "an assignment",
                        List.of(consumer),
                        () -> consumer.assignment().size() == 1);
                ToolChecks.contains(
                        Tool.run(
                                GROUPS,
                                ToolChecks.at(
                                        cluster,
                                        "--describe",
                                        "--group",
                                        group,
                                        "--members",
                                        "--verbose")),
                        "seen-by-tool",
                        topic + "(\\(|:)0");
                ToolChecks.contains(
                        Tool.run(
                                GROUPS,
                                ToolChecks.at(
                                        cluster, "--list", "--state", "stable", "--type",
                                        protocol)),
                        group + "\\s+\\w+\\s+Stable");
                ToolChecks.contains(
                        Tool.run(GROUPS, ToolChecks.at(cluster, "--describe", "--group", group)),
                        topic + "\\s+0\\s+10\\s+15\\s+5\\s.*seen-by-tool");
            }
        }
    }

    private static void resetGroups(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String group = Cluster.name("group");
        commit(cluster, topic, group, "classic");
        for (String[] how :
                new String[][] {
                    {"--to-earliest", "0"},
                    {"--to-latest", "15"},
                    {"--shift-by|-5", "10"},
                    {"--to-offset|3", "3"},
                    {"--to-datetime|2020-01-01T00:00:00.000", "0"}
                }) {
            String[] words =
                    Cluster.with(
                            how[0].split("\\|"),
                            "--reset-offsets",
                            "--group",
                            group,
                            "--topic",
                            topic,
                            "--execute");
            ToolChecks.contains(
                    Tool.run(GROUPS, ToolChecks.at(cluster, words)), topic + "\\s+0\\s+" + how[1]);
        }
        ToolChecks.contains(
                Tool.run(
                        GROUPS,
                        ToolChecks.at(
                                cluster, "--delete-offsets", "--group", group, "--topic", topic)),
                "Success|" + topic);
        ToolChecks.contains(
                Tool.run(GROUPS, ToolChecks.at(cluster, "--delete", "--group", group)),
                "successful");
        Cluster.require(
                !Tool.run(GROUPS, ToolChecks.at(cluster, "--list")).contains(group),
                "still listed");
    }

    private static void groups(Cluster cluster) throws Exception {
        String group = Cluster.name("group");
        commit(cluster, cluster.topic(1), group, "consumer");
        ToolChecks.contains(
                Tool.run(TOOLS + "GroupsCommand", ToolChecks.at(cluster, "--list")),
                group + "\\s+Consumer\\s+consumer");
        ToolChecks.contains(
                Tool.run(TOOLS + "GroupsCommand", ToolChecks.at(cluster, "--list", "--consumer")),
                group);
    }

    private static void transactions(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String id = Cluster.name("tx");
        try (KafkaProducer<String, String> producer = cluster.producer("transactional.id", id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v")).get();
            ToolChecks.contains(
                    Tool.run(TRANSACTIONS, ToolChecks.at(cluster, "list")),
                    id + "\\s+1\\s+\\d+\\s+Ongoing");
            ToolChecks.contains(
                    Tool.run(
                            TRANSACTIONS,
                            ToolChecks.at(cluster, "describe", "--transactional-id", id)),
                    "Ongoing",
                    topic + "-0");
            ToolChecks.contains(
                    Tool.run(
                            TRANSACTIONS,
                            ToolChecks.at(
                                    cluster,
                                    "describe-producers",
                                    "--topic",
                                    topic,
                                    "--partition",
                                    "0")),
                    "CurrentTransactionStartOffset.*\\s0\\s*$");
            producer.commitTransaction();
        }
    }

    private static void hanging(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        ToolChecks.contains(
                Tool.run(TRANSACTIONS, ToolChecks.at(cluster, "find-hanging", "--broker-id", "1")),
                "TransactionalId|^\\s*$|ProducerId");
        try (KafkaProducer<String, String> producer =
                cluster.producer("transactional.id", Cluster.name("tx"))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v")).get();
            Tool.run(
                    TRANSACTIONS,
                    ToolChecks.at(
                            cluster,
                            "abort",
                            "--topic",
                            topic,
                            "--partition",
                            "0",
                            "--start-offset",
                            "0"));
            String after =
                    Tool.run(
                            TRANSACTIONS,
                            ToolChecks.at(
                                    cluster,
                                    "describe-producers",
                                    "--topic",
                                    topic,
                                    "--partition",
                                    "0"));
            ToolChecks.contains(after, "None\\s*$");
        }
    }

    private static void verifiable(Cluster cluster) throws Exception {
        String topic = cluster.topic(2);
        ToolChecks.contains(
                Tool.fork(
                        TOOLS + "VerifiableProducer",
                        ToolChecks.at(
                                cluster,
                                "--topic",
                                topic,
                                "--max-messages",
                                "200",
                                "--acks",
                                "-1")),
                "\"sent\":200",
                "\"acked\":200");
        for (String protocol : List.of("classic", "consumer")) {
            String read =
                    Tool.fork(
                            TOOLS + "VerifiableConsumer",
                            ToolChecks.at(
                                    cluster,
                                    "--topic",
                                    topic,
                                    "--group-id",
                                    Cluster.name("group"),
                                    "--max-messages",
                                    "200",
                                    "--reset-policy",
                                    "earliest",
                                    "--group-protocol",
                                    protocol));
            ToolChecks.contains(
                    read, "partitions_assigned", "offsets_committed", "\"success\":true");
        }
    }
}
