package org.apache.kafka.common.utils;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The class that LocalTieredStorage of Kafka 4.3.1 logs with. Kafka 4.4 has it in another package.
 */
public class LogContext {
    public LogContext(String prefix) {
    }

    public Logger logger(Class<?> kind) {
        return LoggerFactory.getLogger(kind);
    }
}
