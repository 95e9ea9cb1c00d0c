import java.io.PrintStream;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the features of one suite against a broker. Each prints one line on standard output:
 * planned, passed or failed, a tab, the feature's name, a tab, what went wrong. Arguments:
 * bootstrap address, suite, and the features (none: all).
 */
final class Main {
    static final long LIMIT_SECONDS = 90;
    private static final PrintStream REPORT = System.out;
    private static final PrintStream ERRORS = System.err;

    @FunctionalInterface
    interface Check {
        void run(Cluster cluster) throws Exception;
    }

    private Main() {}

    public static void main(String[] arguments) {
        Tool.capture();
        int status = 0;
        try {
            runAll(arguments);
        } catch (Exception failure) {
            failure.printStackTrace(ERRORS);
            status = 1;
        }
        REPORT.flush();
        Runtime.getRuntime().halt(status);
    }

    private static void runAll(String[] arguments) throws Exception {
        Map<String, Check> checks =
                switch (arguments[1]) {
                    case "tools" ->
                            joined(
                                    ToolChecks.all(),
                                    CoordinatorToolChecks.all(),
                                    ShareToolChecks.all());
                    case "files" -> FileChecks.all();
                    case "filling" -> FileChecks.filling();
                    case "client" ->
                            joined(
                                    RecordChecks.all(),
                                    GroupChecks.all(),
                                    ShareChecks.all(),
                                    TransactionChecks.all());
                    case "admin" -> joined(AdminChecks.all(), CoordinatorAdminChecks.all());
                    case "streams" -> StreamsChecks.all();
                    default -> throw new IllegalArgumentException("no suite " + arguments[1]);
                };
        List<String> wanted = List.of(arguments).subList(2, arguments.length);
        // What a tool prints is told apart by time alone, so tools run one after the other.
        int atOnce = arguments[1].equals("client") ? 4 : 1;
        for (String name : checks.keySet()) {
            if (wanted.isEmpty() || wanted.contains(name)) {
                REPORT.println("planned\t" + name + "\t");
            }
        }
        ExecutorService runners = Executors.newFixedThreadPool(atOnce, Main::daemon);
        try (Cluster cluster = new Cluster(arguments[0])) {
            for (String name : checks.keySet()) {
                if (wanted.isEmpty() || wanted.contains(name)) {
                    runners.submit(() -> report(name, checks.get(name), cluster));
                }
            }
            runners.shutdown();
            runners.awaitTermination(LIMIT_SECONDS * checks.size(), TimeUnit.SECONDS);
        }
    }

    private static void report(String name, Check check, Cluster cluster) {
        String fault = faultOf(check, cluster);
        String line = fault == null ? "passed\t" + name + "\t" : "failed\t" + name + "\t" + fault;
        synchronized (REPORT) {
            REPORT.println(line);
            REPORT.flush();
        }
    }

    private static String faultOf(Check check, Cluster cluster) {
        ExecutorService runner = Executors.newSingleThreadExecutor(Main::daemon);
        Thread[] thread = new Thread[1];
        Future<?> done =
                runner.submit(
                        () -> {
                            thread[0] = Thread.currentThread();
                            check.run(cluster);
                            return null;
                        });
        try {
            done.get(LIMIT_SECONDS, TimeUnit.SECONDS);
            return null;
        } catch (TimeoutException late) {
            String where = thread[0] == null ? "" : frames(thread[0].getStackTrace());
            done.cancel(true);
            return "not within " + LIMIT_SECONDS + " s, at " + where;
        } catch (Exception failure) {
            Throwable cause = failure.getCause() == null ? failure : failure.getCause();
            return (cause + " at " + frames(cause.getStackTrace())).replaceAll("\\s+", " ");
        } finally {
            runner.shutdownNow();
        }
    }

    private static String frames(StackTraceElement[] trace) {
        StringBuilder text = new StringBuilder();
        for (StackTraceElement frame : trace) {
            if (frame.getClassName().indexOf('.') < 0 && !frame.getClassName().startsWith("Main")) {
                text.append(frame.getFileName())
                        .append(':')
                        .append(frame.getLineNumber())
                        .append(' ');
            }
        }
        return text.toString();
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }

    @SafeVarargs
    private static Map<String, Check> joined(Map<String, Check>... parts) {
        Map<String, Check> all = new LinkedHashMap<>();
        for (Map<String, Check> part : parts) {
            all.putAll(part);
        }
        return all;
    }
}
