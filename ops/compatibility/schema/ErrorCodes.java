import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Prints Kafka's error codes in the order of their numbers, each as a line of four fields between tabs:
 * number, name, whether a client may retry, message.
 */
public final class ErrorCodes {
    private ErrorCodes() {
    }

    /** Prints the table. */
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            boolean isRetriable = error.exception() instanceof RetriableException;
            String message = error == Errors.NONE ? "" : error.message();
            System.out.println(error.code() + "\t" + error.name() + "\t" + isRetriable + "\t" + message);
        }
    }
}
