//! Commands with odd words, and their replies as Redis gives them.

use forebay_cache::resp::Proto;

use crate::commands_support::transcript;

#[test]
fn a_transaction_with_a_wrong_subcommand_or_exec_is_refused() {
    transcript(
        Proto::Resp2,
        r#"
        OBJECT FOO k => !ERR unknown subcommand 'FOO'. Try OBJECT HELP.
        OBJECT FOO => !ERR unknown subcommand 'FOO'. Try OBJECT HELP.
        OBJECT ENCODING => !ERR wrong number of arguments for 'object|encoding' command
        CLIENT SETNAME => !ERR wrong number of arguments for 'client|setname' command
        CONFIG GET => !ERR wrong number of arguments for 'config|get' command
        PUBSUB NUMPAT x => !ERR wrong number of arguments for 'pubsub|numpat' command
        MEMORY USAGE k SAMPLES x => !ERR value is not an integer or out of range
        MULTI => OK
        CONFIG FOO => !ERR unknown subcommand 'FOO'. Try CONFIG HELP.
        EXEC => !EXECABORT Transaction discarded because of previous errors.
        MULTI => OK
        SET k 1 => QUEUED
        EXEC now => !EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command
        EXEC => !ERR EXEC without MULTI
        GET k => nil
        "#,
    );
}

#[test]
fn subscribe_runs_within_a_transaction() {
    transcript(
        Proto::Resp2,
        r#"
        MULTI => OK
        SUBSCRIBE a => QUEUED
        SSUBSCRIBE b => QUEUED
        SET k 1 => QUEUED
        UNSUBSCRIBE a => QUEUED
        EXEC => [["subscribe" "a" 1] !ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client OK ["unsubscribe" "a" 0]]
        GET k => "1"
        MULTI => OK
        SUBSCRIBE a => QUEUED
        EXEC => [["subscribe" "a" 1]]
        EXEC => !EXECABORT Transaction discarded because of: Can't execute 'exec': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context
        "#,
    );
}

#[test]
fn scores_and_ranges_are_read_as_redis_reads_them() {
    transcript(
        Proto::Resp2,
        r#"
        ZADD z -0 a 1 b => 2
        ZSCORE z a => "0"
        ZRANGE z 0 -1 WITHSCORES => ["a" "0" "b" "1"]
        ZCOUNT z " 1" 2 => 1
        ZCOUNT z -1e400 1e400 => 2
        ZRANGEBYSCORE z "( 0" 1e-400 => []
        ZCOUNT z "1 " 2 => !ERR min or max is not a float
        ZADD z 1e400 c => !ERR value is not a valid float
        ZRANDMEMBER z x FOO => !ERR value is not an integer or out of range
        "#,
    );
}

#[test]
fn floats_are_added_with_the_precision_of_redis() {
    transcript(
        Proto::Resp2,
        r#"
        INCRBYFLOAT f 3.14159265358979323846 => "3.14159265358979324"
        SET f 1234567890123456789.25 => OK
        INCRBYFLOAT f 0.5 => "1234567890123456789.75"
        HINCRBYFLOAT h f 12345678901234567.125 => "12345678901234567.125"
        INCRBYFLOAT f inf => !ERR increment would produce NaN or Infinity
        EXPIRE f x NX XX => !ERR NX and XX, GT or LT options at the same time are not compatible
        SET f 1 EX 10 EX 100 => OK
        SET f 1 EX 10 PX 100 => !ERR syntax error
        GETEX f EX x EX 5 => "1"
        GETEX f PERSIST PERSIST => "1"
        GETEX f EX 5 EX x => !ERR value is not an integer or out of range
        GETEX f EX 10 PX 20 => !ERR syntax error
        GETEX f EX 10 PERSIST => !ERR syntax error
        GETEX f PERSIST EX 10 => !ERR syntax error
        GETEX f EX => !ERR syntax error
        TTL f => -1
        MOVE f 99999999999 => !ERR value is out of range, value must between -2147483648 and 2147483647
        SELECT 99 => !ERR DB index is out of range
        "#,
    );
}
