import org.apache.kafka.common.utils.internals.Exit;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Runs the main function of one of Kafka's command-line tools inside this process. */
record Tool(int status, String output) {
    private static final ByteArrayOutputStream OUTPUT = new ByteArrayOutputStream();
    private static volatile Ended ended;

    /**
     * Thrown where the tool would end the process. Tools catch it and go on: only the first one
     * counts.
     */
    static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;
        final int status;

        Ended(int status, String message) {
            super("exit status " + status + (message == null ? "" : ": " + message));
            this.status = status;
        }
    }

    /**
     * Sends everything that is printed from now on to memory. Scala's console remembers the stream
     * it saw first.
     */
    static void capture() {
        PrintStream stream = new PrintStream(new Sink(), true);
        System.setOut(stream);
        System.setErr(stream);
        Exit.Procedure end =
                (status, message) -> {
                    Ended raised = new Ended(status, message);
                    ended = ended == null ? raised : ended;
                    throw raised;
                };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
    }

    static String run(String main, String... arguments) throws Exception {
        return runWith("", main, arguments);
    }

    /** Returns what the tool printed; fails with it unless the tool ended with status 0. */
    static String runWith(String input, String main, String... arguments) throws Exception {
        Tool done = tryWith(input, main, arguments);
        Cluster.same(
                0,
                done.status,
                main + " " + String.join(" ", arguments) + " printed " + done.output + "; status");
        return done.output;
    }

    /**
     * Runs a tool that ends its process by itself, in a process of its own, for a minute at most.
     */
    static String fork(String main, String... arguments) throws Exception {
        String java = System.getProperty("java.home") + "/bin/java";
        String[] command = {
            java, "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"), main
        };
        Process process =
                new ProcessBuilder(List.of(Cluster.with(command, arguments)))
                        .redirectErrorStream(true)
                        .start();
        process.onExit()
                .completeOnTimeout(null, 60, TimeUnit.SECONDS)
                .thenRun(process::destroyForcibly);
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        Cluster.same(0, process.waitFor(), main + " printed " + output + "; status");
        return output;
    }

    static Tool tryWith(String input, String main, String... arguments) throws Exception {
        InputStream stdin = System.in;
        synchronized (OUTPUT) {
            OUTPUT.reset();
        }
        boolean failed = false;
        ended = null;
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException raised) {
            raised.getCause().printStackTrace();
            failed = true;
        } finally {
            System.setIn(stdin);
        }
        synchronized (OUTPUT) {
            int status = ended != null ? ended.status : failed ? 1 : 0;
            return new Tool(status, OUTPUT.toString(StandardCharsets.UTF_8));
        }
    }

    private static final class Sink extends OutputStream {
        @Override
        public void write(int character) {
            synchronized (OUTPUT) {
                if (ended == null) {
                    OUTPUT.write(character);
                }
            }
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            synchronized (OUTPUT) {
                if (ended == null) {
                    OUTPUT.write(bytes, from, length);
                }
            }
        }
    }
}
