import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Kafka's command-line tools, by the names of their scripts: topics, records, the cluster. */
final class ToolChecks {
    private static final String TOOLS = "org.apache.kafka.tools.";
    // V20: kafka.admin.ConfigCommand is no more.
    private static final String CONFIGS = "org.apache.kafka.tools.ConfigCommand";

    private ToolChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("kafka-topics", ToolChecks::topics);
        checks.put("kafka-configs: topics, brokers, clients, addresses", ToolChecks::configs);
        checks.put("kafka-console-producer and -consumer", ToolChecks::console);
        checks.put("kafka-producer-perf-test and -consumer-perf-test", ToolChecks::performance);
        checks.put("kafka-producer-perf-test, transactional", ToolChecks::transactionalPerformance);
        checks.put("kafka-e2e-latency", ToolChecks::latency);
        checks.put("kafka-delete-records", ToolChecks::deleteRecords);
        checks.put("kafka-get-offsets", ToolChecks::getOffsets);
        checks.put("kafka-log-dirs", ToolChecks::logDirs);
        checks.put("kafka-cluster", ToolChecks::cluster);
        checks.put("kafka-broker-api-versions", ToolChecks::apiVersions);
        checks.put("kafka-leader-election", ToolChecks::election);
        checks.put("kafka-reassign-partitions", ToolChecks::reassign);
        checks.put("kafka-features", ToolChecks::features);
        checks.put("kafka-metadata-quorum describe", ToolChecks::quorum);
        checks.put("kafka-client-metrics", ToolChecks::clientMetrics);
        checks.put("kafka-acls: not enabled", ToolChecks::acls);
        return checks;
    }

    static String[] at(Cluster cluster, String... arguments) {
        return Cluster.with(new String[] {"--bootstrap-server", cluster.bootstrap}, arguments);
    }

    static void contains(String text, String... words) {
        for (String word : words) {
            Cluster.require(
                    Pattern.compile(word, Pattern.DOTALL).matcher(text).find(),
                    "no '" + word + "' in: " + text);
        }
    }

    private static void topics(Cluster cluster) throws Exception {
        String topic = Cluster.name("tool");
        String main = TOOLS + "TopicCommand";
        contains(
                Tool.run(
                        main,
                        at(
                                cluster,
                                "--create",
                                "--topic",
                                topic,
                                "--partitions",
                                "2",
                                "--config",
                                "retention.ms=1000000")),
                "Created topic " + topic);
        contains(Tool.run(main, at(cluster, "--list")), topic);
        contains(
                Tool.run(main, at(cluster, "--describe", "--topic", topic)),
                "PartitionCount: 2",
                "ReplicationFactor: 1",
                "retention.ms=1000000",
                "Leader: \\d+");
        Tool.run(main, at(cluster, "--alter", "--topic", topic, "--partitions", "4"));
        contains(Tool.run(main, at(cluster, "--describe", "--topic", topic)), "PartitionCount: 4");
        Cluster.same(
                "",
                Tool.run(main, at(cluster, "--describe", "--under-replicated-partitions")).trim(),
                "under-replicated");
        Cluster.same(
                "",
                Tool.run(main, at(cluster, "--describe", "--unavailable-partitions")).trim(),
                "unavailable");
        contains(Tool.run(main, at(cluster, "--describe", "--topics-with-overrides")), topic);
        Tool.run(main, at(cluster, "--delete", "--topic", topic));
        Cluster.require(!Tool.run(main, at(cluster, "--list")).contains(topic), "still listed");
    }

    private static void configs(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        Tool.run(
                CONFIGS,
                at(
                        cluster,
                        "--alter",
                        "--topic",
                        topic,
                        "--add-config",
                        "retention.ms=55555,cleanup.policy=[compact,delete]"));
        contains(
                Tool.run(CONFIGS, at(cluster, "--describe", "--topic", topic)),
                "retention.ms=55555",
                "cleanup.policy=compact,delete");
        Tool.run(
                CONFIGS,
                at(cluster, "--alter", "--topic", topic, "--delete-config", "retention.ms"));
        contains(
                Tool.run(CONFIGS, at(cluster, "--describe", "--topic", topic, "--all")),
                "retention.ms=604800000");
        contains(
                Tool.run(
                        CONFIGS,
                        at(
                                cluster,
                                "--describe",
                                "--entity-type",
                                "brokers",
                                "--entity-name",
                                "1",
                                "--all")),
                "log.retention.ms=",
                "num.io.threads=");
        Tool.run(
                CONFIGS,
                at(
                        cluster,
                        "--alter",
                        "--broker-defaults",
                        "--add-config",
                        "message.max.bytes=2000000"));
        contains(
                Tool.run(CONFIGS, at(cluster, "--describe", "--broker-defaults")),
                "message.max.bytes=2000000");
        Tool.run(
                CONFIGS,
                at(
                        cluster,
                        "--alter",
                        "--broker-defaults",
                        "--delete-config",
                        "message.max.bytes"));
        runningBroker(cluster);
        String client = Cluster.name("client");
        Tool.run(
                CONFIGS,
                at(
                        cluster,
                        "--alter",
                        "--client",
                        client,
                        "--add-config",
                        "consumer_byte_rate=1000000000"));
        Cluster.until(
                "the quota",
                () ->
                        Tool.run(CONFIGS, at(cluster, "--describe", "--client", client))
                                .contains("consumer_byte_rate=1.0E9"));
        Tool.run(
                CONFIGS,
                at(
                        cluster,
                        "--alter",
                        "--client",
                        client,
                        "--delete-config",
                        "consumer_byte_rate"));
        for (String ip : new String[] {"127.0.0.77", "::1", "localhost"}) {
            String[] address = {"--entity-type", "ips", "--entity-name", ip};
            String rate = "connection_creation_rate";
            Tool.run(CONFIGS, at(cluster, Cluster.with(address, "--alter", "--add-config", rate + "=100000")));
            contains(Tool.run(CONFIGS, at(cluster, Cluster.with(address, "--describe"))), rate + "=100000.0");
            Tool.run(CONFIGS, at(cluster, Cluster.with(address, "--alter", "--delete-config", rate)));
        }
        String group = Cluster.name("group");
        Tool.run(
                CONFIGS,
                at(
                        cluster,
                        "--alter",
                        "--group",
                        group,
                        "--add-config",
                        "consumer.session.timeout.ms=50000"));
        contains(
                Tool.run(CONFIGS, at(cluster, "--describe", "--group", group)),
                "consumer.session.timeout.ms=50000");
    }

    private static void runningBroker(Cluster cluster) throws Exception {
        String[][] changes = {
            {"brokers", "log.retention.ms=600000000", "--delete-config", "log.retention.ms"},
            {"brokers", "max.connections=100000", "--delete-config", "max.connections"},
            {
                "brokers",
                "listener.name.plaintext.max.connection.creation.rate=100000",
                "--delete-config",
                "listener.name.plaintext.max.connection.creation.rate"
            },
            {"brokers", "background.threads=11", "--delete-config", "background.threads"},
            {"broker-loggers", "root=WARN", "--add-config", "root=INFO"},
        };
        for (String[] change : changes) {
            String[] broker = {"--entity-type", change[0], "--entity-name", "1"};
            Tool.run(CONFIGS, at(cluster, Cluster.with(broker, "--alter", "--add-config", change[1])));
            contains(Tool.run(CONFIGS, at(cluster, Cluster.with(broker, "--describe"))), change[1]);
            Tool.run(CONFIGS, at(cluster, Cluster.with(broker, "--alter", change[2], change[3])));
        }
    }

    private static void console(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        Tool.runWith(
                "k1:v1\nk2:v2\n",
                TOOLS + "ConsoleProducer",
                at(
                        cluster,
                        "--topic",
                        topic,
                        "--reader-property",
                        "parse.key=true",
                        "--reader-property",
                        "key.separator=:"));
        String read =
                Tool.run(
                        TOOLS + "consumer.ConsoleConsumer",
                        at(
                                cluster,
                                "--topic",
                                topic,
                                "--from-beginning",
                                "--max-messages",
                                "2",
                                "--formatter-property",
                                "print.key=true",
                                "--timeout-ms",
                                "20000"));
        contains(read, "k1\tv1\nk2\tv2");
    }

    private static void performance(Cluster cluster) throws Exception {
        String topic = cluster.topic(2);
        contains(
                Tool.run(
                        TOOLS + "ProducerPerformance",
                        "--topic",
                        topic,
                        "--num-records",
                        "20000",
                        "--record-size",
                        "100",
                        "--throughput",
                        "-1",
                        "--command-property",
                        "bootstrap.servers=" + cluster.bootstrap),
                "20000 records sent");
        contains(
                Tool.run(
                        TOOLS + "ConsumerPerformance",
                        at(
                                cluster,
                                "--topic",
                                topic,
                                "--num-records",
                                "20000",
                                "--timeout",
                                "20000")),
                ", 20000, ");
    }

    private static void transactionalPerformance(Cluster cluster) throws Exception {
        String topic = cluster.topic(2);
        contains(
                Tool.run(
                        TOOLS + "ProducerPerformance",
                        "--topic",
                        topic,
                        "--num-records",
                        "2000",
                        "--record-size",
                        "100",
                        "--throughput",
                        "2000",
                        "--transaction-duration-ms",
                        "200",
                        "--command-property",
                        "bootstrap.servers=" + cluster.bootstrap),
                "2000 records sent");
    }

    private static void latency(Cluster cluster) throws Exception {
        contains(
                Tool.run(
                        TOOLS + "EndToEndLatency",
                        at(
                                cluster,
                                "--topic",
                                cluster.topic(1),
                                "--num-records",
                                "100",
                                "--producer-acks",
                                "1",
                                "--record-size",
                                "100")),
                "Avg latency",
                "Percentiles");
    }

    private static void deleteRecords(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        Path plan = Files.createTempFile("delete", ".json");
        Files.writeString(
                plan,
                "{\"version\":1,\"partitions\":[{\"topic\":\""
                        + topic
                        + "\",\"partition\":0,\"offset\":6}]}");
        contains(
                Tool.run(
                        TOOLS + "DeleteRecordsCommand",
                        at(cluster, "--offset-json-file", plan.toString())),
                "low_watermark: 6");
        Files.delete(plan);
    }

    private static void getOffsets(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        String main = TOOLS + "GetOffsetShell";
        contains(Tool.run(main, at(cluster, "--topic", topic)), topic + ":0:10");
        for (String[] kind :
                new String[][] {
                    {"earliest", "0"},
                    {"latest", "10"},
                    {"max-timestamp", "\\d"},
                    {"earliest-local", "0"},
                    {"-2", "0"},
                    {"1000", "0"}
                }) {
            contains(
                    Tool.run(main, at(cluster, "--topic", topic, "--time", kind[0])),
                    topic + ":0:" + kind[1]);
        }
    }

    private static void logDirs(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        contains(
                Tool.run(
                        TOOLS + "LogDirsCommand", at(cluster, "--describe", "--topic-list", topic)),
                "\"partition\":\"" + topic + "-0\"",
                "\"size\":[1-9]");
    }

    private static void cluster(Cluster cluster) throws Exception {
        String main = TOOLS + "ClusterTool";
        contains(
                Tool.run(main, Cluster.with(new String[] {"cluster-id"}, at(cluster))),
                "Cluster ID: \\S{22}");
        contains(
                Tool.run(main, Cluster.with(new String[] {"list-endpoints"}, at(cluster))),
                "127.0.0.1");
    }

    private static void apiVersions(Cluster cluster) throws Exception {
        contains(
                Tool.run(TOOLS + "BrokerApiVersionsCommand", at(cluster)),
                "Produce\\(0\\): \\d+ to \\d+",
                "ConsumerGroupHeartbeat\\(68\\): \\d");
    }

    private static void election(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        contains(
                Tool.run(
                        TOOLS + "LeaderElectionCommand",
                        at(
                                cluster,
                                "--election-type",
                                "preferred",
                                "--topic",
                                topic,
                                "--partition",
                                "0")),
                "Valid replica already elected for partitions " + topic + "-0");
        contains(
                Tool.run(
                        TOOLS + "LeaderElectionCommand",
                        at(
                                cluster,
                                "--election-type",
                                "unclean",
                                "--topic",
                                topic,
                                "--partition",
                                "0")),
                "Valid replica already elected for partitions " + topic + "-0");
    }

    private static void reassign(Cluster cluster) throws Exception {
        String topic = cluster.topic(2);
        String main = TOOLS + "reassign.ReassignPartitionsCommand";
        Path topics = Files.createTempFile("topics", ".json");
        Files.writeString(topics, "{\"version\":1,\"topics\":[{\"topic\":\"" + topic + "\"}]}");
        String generated =
                Tool.run(
                        main,
                        at(
                                cluster,
                                "--generate",
                                "--topics-to-move-json-file",
                                topics.toString(),
                                "--broker-list",
                                "1"));
        Matcher plan =
                Pattern.compile("Proposed partition reassignment configuration\\s+(\\{.*\\})")
                        .matcher(generated);
        Cluster.require(plan.find(), "no plan in " + generated);
        Files.writeString(topics, plan.group(1));
        contains(
                Tool.run(
                        main,
                        at(cluster, "--execute", "--reassignment-json-file", topics.toString())),
                "Successfully started partition reassignment");
        contains(
                Tool.run(
                        main,
                        at(cluster, "--verify", "--reassignment-json-file", topics.toString())),
                "Reassignment of partition " + topic + "-0 is completed");
        contains(Tool.run(main, at(cluster, "--list")), "No partition reassignments found");
        Files.delete(topics);
    }

    private static void features(Cluster cluster) throws Exception {
        String main = TOOLS + "FeatureCommand";
        contains(
                Tool.run(main, at(cluster, "describe")),
                "transaction.version.*FinalizedVersionLevel: 2",
                "group.version.*FinalizedVersionLevel: 1",
                "share.version.*FinalizedVersionLevel: 2",
                "metadata.version.*FinalizedVersionLevel: 4.4-IV2");
        contains(
                Tool.run(
                        main,
                        at(cluster, "upgrade", "--feature", "transaction.version=2", "--dry-run")),
                "transaction.version can be upgraded to 2|No features");
        contains(
                Tool.run(main, at(cluster, "upgrade", "--metadata", "4.4")),
                "metadata.version was upgraded to 33");
        contains(
                Tool.run(main, at(cluster, "upgrade", "--release-version", "4.4")),
                "metadata.version was upgraded to 33",
                "share.version was upgraded to 2");
        contains(
                Tool.tryWith("", main, at(cluster, "downgrade", "--release-version", "4.2")).output(),
                "Refusing to perform the requested downgrade");
    }

    private static void quorum(Cluster cluster) throws Exception {
        String main = TOOLS + "MetadataQuorumCommand";
        contains(
                Tool.run(main, at(cluster, "describe", "--status")),
                "ClusterId",
                "LeaderId:\\s+\\d+",
                "CurrentVoters");
        contains(Tool.run(main, at(cluster, "describe", "--replication")), "Leader\\s");
    }

    /** T20. */
    private static void clientMetrics(Cluster cluster) throws Exception {
        String main = TOOLS + "ClientMetricsCommand";
        String name = Cluster.name("metrics");
        Tool.run(
                main,
                at(
                        cluster,
                        "--alter",
                        "--name",
                        name,
                        "--metrics",
                        "org.apache.kafka.producer.",
                        "--interval",
                        "60000",
                        "--match",
                        "client_software_name=apache.*,client_id=a"));
        contains(
                Tool.run(main, at(cluster, "--describe", "--name", name)),
                "interval.ms=60000",
                "match=client_software_name=apache.*,client_id=a",
                "metrics=org.apache.kafka.producer.");
        contains(Tool.run(main, at(cluster, "--list")), name);
        Tool.run(main, at(cluster, "--delete", "--name", name));
        Cluster.require(!Tool.run(main, at(cluster, "--list")).contains(name), "still listed");
    }

    private static void acls(Cluster cluster) throws Exception {
        Tool done = Tool.tryWith("", TOOLS + "AclCommand", at(cluster, "--list"));
        contains(done.output(), "SecurityDisabledException");
    }
}
