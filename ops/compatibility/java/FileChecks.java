import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * Kafka's dump tool over every file of a data directory that a broker has written. ROTUNDA_DATA
 * names it.
 */
final class FileChecks {
    private static final String DUMP = "org.apache.kafka.tools.DumpLogSegments";

    private FileChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put(
                "dump-log: segments, deep iteration",
                c -> dump(".log", "--deep-iteration", "--print-data-log"));
        checks.put(
                "dump-log: offset index, sanity check",
                c -> dump(".index", "--index-sanity-check"));
        checks.put(
                "dump-log: offset index, verified against its segment",
                c -> dump(".index", "--verify-index-only"));
        checks.put(
                "dump-log: time index, sanity check",
                c -> dump(".timeindex", "--index-sanity-check"));
        checks.put(
                "dump-log: time index, verified against its segment",
                c -> dump(".timeindex", "--verify-index-only"));
        checks.put("dump-log: producer snapshots", c -> dump(".snapshot"));
        checks.put("dump-log: aborted transactions", c -> dump(".txnindex"));
        checks.put(
                "dump-log: group offsets decoded",
                c ->
                        decode(
                                "__consumer_offsets",
                                "--offsets-decoder",
                                "\"type\":\"1\"|\"type\":\"2\""));
        checks.put(
                "dump-log: transaction log decoded",
                c ->
                        decode(
                                "__transaction_state",
                                "--transaction-log-decoder",
                                "\"transactionStatus\":\"CompleteCommit\""));
        return checks;
    }

    /**
     * What another broker writes its files from: several segments, every codec, both kinds of
     * timestamp, aborted records.
     */
    static Map<String, Main.Check> filling() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        for (String type : List.of("CreateTime", "LogAppendTime")) {
            checks.put(
                    "segments are filled, " + type,
                    c ->
                            fill(
                                    c,
                                    c.topic(
                                            1,
                                            "segment.bytes",
                                            "1048576",
                                            "retention.ms",
                                            "-1",
                                            "message.timestamp.type",
                                            type)));
        }
        checks.put(
                "a compacted topic is filled",
                c -> fill(c, c.topic(1, "segment.bytes", "1048576", "cleanup.policy", "compact")));
        checks.put("offsets and transactions are written", TransactionChecks::transformClassic);
        return checks;
    }

    private static void fill(Cluster cluster, String topic) throws Exception {
        Random random = new Random(1);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<String, String> producer =
                    cluster.producer(
                            "compression.type",
                            codec,
                            "batch.size",
                            "2000",
                            "transactional.id",
                            Cluster.name("tx"))) {
                producer.initTransactions();
                for (int round = 0; round < 8; round++) {
                    producer.beginTransaction();
                    for (int number = 0; number < 100; number++) {
                        String value =
                                random.ints(600, 33, 126)
                                        .collect(
                                                StringBuilder::new,
                                                StringBuilder::appendCodePoint,
                                                StringBuilder::append)
                                        .toString();
                        producer.send(
                                new ProducerRecord<>(
                                        topic,
                                        0,
                                        1_700_000_000_000L + random.nextInt(100_000),
                                        "key-" + number,
                                        value));
                    }
                    if (round % 3 == 2) {
                        producer.flush();
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                }
            }
        }
    }

    private static List<String> files(String folder, String ending) throws IOException {
        try (Stream<Path> all = Files.walk(Path.of(System.getenv("ROTUNDA_DATA")))) {
            List<String> found =
                    all.filter(
                                    path ->
                                            path.toString().endsWith(ending)
                                                    && path.getParent()
                                                            .getFileName()
                                                            .toString()
                                                            .startsWith(folder))
                            .filter(path -> path.toFile().length() > 0)
                            .map(Path::toString)
                            .toList();
            Cluster.require(!found.isEmpty(), "no file " + folder + "*/*" + ending);
            return found;
        }
    }

    /** The tool ends with status 0 on damaged files too: what it says of them counts. */
    private static String checked(String... arguments) throws Exception {
        String output = Tool.run(DUMP, arguments);
        for (String sign :
                List.of(
                        "isvalid: false",
                        "Mismatches in",
                        "Found timestamp mismatch",
                        "Found out of order",
                        "not parseable",
                        "Exception",
                        "corrupt",
                        "Found indexed offset")) {
            int at = output.indexOf(sign);
            Cluster.require(
                    at < 0,
                    String.join(" ", arguments)
                            + ": "
                            + (at < 0
                                    ? ""
                                    : output.substring(at, Math.min(output.length(), at + 300))));
        }
        // The tool also counts the start of a segment whose first batch is a marker, as "-1 is
        // followed by".
        Matcher gap = Pattern.compile("(?m)^  \\d+ is followed by \\d+$").matcher(output);
        Cluster.require(!gap.find(), "offsets are missing");
        return output;
    }

    private static void dump(String ending, String... options) throws Exception {
        for (String file : files("", ending)) {
            String output = checked(Cluster.with(options, "--files", file));
            Cluster.require(output.length() > 60, file + ": nothing was printed but " + output);
        }
    }

    private static void decode(String topic, String decoder, String expected) throws Exception {
        StringBuilder all = new StringBuilder();
        for (String file : files(topic, ".log")) {
            all.append(checked("--deep-iteration", decoder, "--files", file));
        }
        for (String word : expected.split("\\|")) {
            Cluster.require(
                    all.toString().contains(word),
                    word + " is missing in " + all.substring(0, Math.min(600, all.length())));
        }
    }
}
