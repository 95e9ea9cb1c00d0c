import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

/**
 * Does one kind of work under a limit and prints what the application has seen, as JSON: how much was done, errors, the
 * longest throttle time, whether a connection was closed from outside. Arguments: bootstrap address, client id,
 * topic, work, and how much of it.
 */
final class Limited {
    private static final byte[] LARGE = new byte[10_000];
    private static final byte[] SMALL = new byte[10];
    private static final int FETCH_BYTES = 30_000;
    private static final long WATCH_MS = 10;
    private static final Duration POLL = Duration.ofMillis(500);

    private final String bootstrap;
    private final String clientId;
    private final String topic;
    private final int count;
    private final List<String> errors = new ArrayList<>();
    private int done;
    private double throttleMs;
    private boolean isClosed;

    private Limited(String[] arguments) {
        bootstrap = arguments[0];
        clientId = arguments[1];
        topic = arguments[2];
        count = Integer.parseInt(arguments[4]);
    }

    public static void main(String[] arguments) {
        Limited limited = new Limited(arguments);
        try {
            switch (arguments[3]) {
                case "produce" -> limited.produce();
                case "requests" -> limited.requests();
                case "consume" -> limited.consume();
                case "topics" -> limited.topics();
                case "connect" -> limited.connect();
                default -> throw new IllegalArgumentException("no work " + arguments[3]);
            }
        } catch (Exception failure) {
            limited.errors.add(failure.toString().replace('"', '\'').replace('\n', ' '));
        }
        String errors = limited.errors.isEmpty() ? "" : '"' + String.join("\", \"", limited.errors) + '"';
        System.out.printf(
                "{\"done\": %d, \"errors\": [%s], \"throttle_ms\": %.0f, \"closed\": %b}%n",
                limited.done, errors, limited.throttleMs, limited.isClosed);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> settings() {
        return Map.of("bootstrap.servers", bootstrap, "client.id", clientId, "reconnect.backoff.max.ms", 500);
    }

    private KafkaProducer<byte[], byte[]> producer() {
        Map<String, Object> all = new java.util.HashMap<>(settings());
        all.putAll(Map.of("batch.size", 20_000, "linger.ms", 0));
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void produce() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, LARGE)));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
                done++;
            }
            see(producer.metrics(), "produce-throttle-time-max");
        }
    }

    private void requests() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, SMALL)).get();
                done++;
            }
            see(producer.metrics(), "produce-throttle-time-max");
        }
    }

    private void connect() throws Exception {
        for (int number = 0; number < count; number++) {
            try (KafkaProducer<byte[], byte[]> producer = producer()) {
                Thread watch = new Thread(() -> watch(producer));
                watch.setDaemon(true);
                watch.start();
                producer.send(new ProducerRecord<>(topic, 0, null, SMALL)).get();
                done++;
                watch.interrupt();
                watch.join();
                see(producer.metrics(), "produce-throttle-time-max");
            }
        }
    }

    /** Says in lines of their own that a first connection has been made, and that one has been closed. */
    private void watch(KafkaProducer<byte[], byte[]> producer) {
        try {
            for (String each : List.of("connection-creation-total", "connection-close-total")) {
                while (total(producer.metrics(), each) == 0) {
                    Thread.sleep(WATCH_MS);
                }
                System.out.println(each);
                System.out.flush();
            }
        } catch (InterruptedException done) {
            Thread.currentThread().interrupt();
        }
    }

    private static double total(Map<MetricName, ? extends Metric> metrics, String name) {
        double total = 0;
        for (Map.Entry<MetricName, ? extends Metric> each : metrics.entrySet()) {
            if (each.getKey().name().equals(name) && each.getValue().metricValue() instanceof Double value) {
                total += value;
            }
        }
        return total;
    }

    private void consume() {
        Map<String, Object> all = new java.util.HashMap<>(settings());
        all.putAll(Map.of("fetch.max.bytes", FETCH_BYTES, "max.partition.fetch.bytes", FETCH_BYTES));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            while (done < count) {
                done += consumer.poll(POLL).count();
            }
            see(consumer.metrics(), "fetch-throttle-time-max");
        }
    }

    /** The first topic uses the quota up; the second is refused once, and then waited for. */
    private void topics() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            create(admin, topic + "-0", count, true);
            try {
                create(admin, topic + "-1", 1, false);
            } catch (ExecutionException failure) {
                if (!(failure.getCause() instanceof ThrottlingQuotaExceededException refused)) {
                    throw failure;
                }
                errors.add("THROTTLING_QUOTA_EXCEEDED");
                throttleMs = refused.throttleTimeMs();
                create(admin, topic + "-1", 1, true);
            }
        }
    }

    private void create(Admin admin, String name, int partitions, boolean isRetried) throws Exception {
        CreateTopicsOptions options = new CreateTopicsOptions().retryOnQuotaViolation(isRetried);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1)), options).all().get();
        done++;
    }

    private void see(Map<MetricName, ? extends Metric> metrics, String throttle) {
        for (Map.Entry<MetricName, ? extends Metric> each : metrics.entrySet()) {
            Object value = each.getValue().metricValue();
            String name = each.getKey().name();
            if (name.equals(throttle) && value instanceof Double time && time > throttleMs) {
                throttleMs = time;
            }
        }
        isClosed |= total(metrics, "connection-close-total") > 0;
    }
}
