//! Commands and their replies, as Redis documents them.

use forebay_cache::resp::Proto;

use crate::commands_support::transcript;

#[test]
fn hashes_answer_as_documented() {
    transcript(
        Proto::Resp3,
        r#"
        HSET h a 1 b 2 => 2
        HSET h a 3 c 4 => 1
        HMSET h a 1 => OK
        HSET h a => !ERR wrong number of arguments for 'hset' command
        HSET h a 1 b => !ERR wrong number of arguments for 'hset' command
        HGET h a => "1"
        HGET h x => nil
        HMGET h a x => ["1" nil]
        HGETALL h => {"a": "1" "b": "2" "c": "4"}
        HGETALL none => {}
        HKEYS h => ["a" "b" "c"]
        HVALS h => ["1" "2" "4"]
        HLEN h => 3
        HSTRLEN h b => 1
        HEXISTS h b => 1
        HSETNX h b 9 => 0
        HSETNX h d 9 => 1
        HINCRBY h d 5 => 14
        HINCRBY h d x => !ERR value is not an integer or out of range
        HSET h s text => 1
        HINCRBY h s 1 => !ERR hash value is not an integer
        HINCRBYFLOAT h s 1 => !ERR hash value is not a float
        HINCRBYFLOAT h n 0.1 => "0.1"
        HINCRBYFLOAT h n 0.2 => "0.3"
        HINCRBYFLOAT h n inf => !ERR value is NaN or Infinity
        HSET h big 9223372036854775807 => 1
        HINCRBY h big 1 => !ERR increment or decrement would overflow
        HDEL h a b c d s n x => 6
        HRANDFIELD h => "big"
        HRANDFIELD h -2 => ["big" "big"]
        HRANDFIELD h 5 WITHVALUES => [["big" "9223372036854775807"]]
        HRANDFIELD h -9223372036854775808 => !ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
        HRANDFIELD h 9223372036854775807 WITHVALUES => !ERR value is out of range
        HRANDFIELD none 2 => []
        HSCAN h 0 => ["0" ["big" "9223372036854775807"]]
        HSCAN h 0 NOVALUES => ["0" ["big"]]
        HSCAN h x => !ERR invalid cursor
        HGETDEL h FIELDS 2 big no => ["9223372036854775807" nil]
        EXISTS h => 0
        SET s 1 => OK
        HGET s a => !WRONGTYPE Operation against a key holding the wrong kind of value
        HSET s a 1 => !WRONGTYPE Operation against a key holding the wrong kind of value
        "#,
    );
    transcript(
        Proto::Resp2,
        r#"
        HSET h a 1 => 1
        HGETALL h => ["a" "1"]
        HRANDFIELD h 1 WITHVALUES => ["a" "1"]
        HGET h x => nil
        "#,
    );
}

#[test]
fn sets_answer_as_documented() {
    transcript(
        Proto::Resp3,
        r#"
        SADD s 3 1 2 => 3
        SADD s 1 => 0
        SMEMBERS s => #{"1" "2" "3"}
        SMEMBERS none => #{}
        SISMEMBER s 1 => 1
        SMISMEMBER s 1 9 => [1 0]
        SCARD s => 3
        SADD t 2 3 4 => 3
        SINTER s t => #{"2" "3"}
        SINTER s none => #{}
        SUNION s t => #{"1" "2" "3" "4"}
        SDIFF s t => #{"1"}
        SINTERCARD 2 s t => 2
        SINTERCARD 2 s t LIMIT 1 => 1
        SINTERCARD 0 s => !ERR numkeys should be greater than 0
        SINTERCARD 3 s t => !ERR Number of keys can't be greater than number of args
        SINTERCARD 1 s LIMIT -1 => !ERR LIMIT can't be negative
        SINTERSTORE i s t => 2
        SUNIONSTORE u s t => 4
        SDIFFSTORE d s t => 1
        SDIFFSTORE d s s => 0
        EXISTS d => 0
        SMOVE s t 1 => 1
        SMOVE s t 1 => 0
        SREM s 2 9 => 1
        SPOP s => "3"
        EXISTS s => 0
        SPOP s => nil
        SPOP s 2 => #{}
        SPOP t -1 => !ERR value is out of range, must be positive
        SREM t 2 3 4 => 3
        SPOP t 9 => #{"1"}
        SADD one x => 1
        SRANDMEMBER one => "x"
        SRANDMEMBER one -3 => ["x" "x" "x"]
        SRANDMEMBER one 3 => ["x"]
        SSCAN one 0 MATCH y* => ["0" []]
        SET str 1 => OK
        SINTER none str => !WRONGTYPE Operation against a key holding the wrong kind of value
        SMOVE one str x => !WRONGTYPE Operation against a key holding the wrong kind of value
        SMEMBERS one => #{"x"}
        "#,
    );
}

#[test]
fn sorted_sets_answer_as_documented() {
    transcript(
        Proto::Resp3,
        r#"
        ZADD z 1 a 2 b 3 c => 3
        ZADD z XX CH 5 a 6 x => 1
        ZADD z NX 9 a 4 d => 1
        ZADD z GT CH 4 a 7 b => 1
        ZADD z LT INCR 1 a => nil
        ZADD z INCR 1.5 a => 6.5f
        ZADD z NX XX 1 a => !ERR XX and NX options at the same time are not compatible
        ZADD z GT LT 1 a => !ERR GT, LT, and/or NX options at the same time are not compatible
        ZADD z INCR 1 a 2 b => !ERR INCR option supports a single increment-element pair
        ZADD z 1 a 2 => !ERR syntax error
        ZADD z x a => !ERR value is not a valid float
        ZRANGE z 0 -1 WITHSCORES => [["c" 3f] ["d" 4f] ["a" 6.5f] ["b" 7f]]
        ZSCORE z a => 6.5f
        ZMSCORE z a x => [6.5f nil]
        ZRANK z a => 2
        ZRANK z a WITHSCORE => [2 6.5f]
        ZREVRANK z a => 1
        ZRANK z x WITHSCORE => nil
        ZCOUNT z (3 +inf => 3
        ZCOUNT z a b => !ERR min or max is not a float
        ZRANGE z (3 7 BYSCORE LIMIT 1 2 => ["a" "b"]
        ZRANGE z 7 3 BYSCORE REV LIMIT 0 1 => ["b"]
        ZRANGE z 0 1 LIMIT 0 1 => !ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX
        ZRANGE z - + BYLEX WITHSCORES => !ERR syntax error, WITHSCORES not supported in combination with BYLEX
        ZRANGE z 0 x => !ERR value is not an integer or out of range
        ZREVRANGE z 0 0 => ["b"]
        ZRANGEBYSCORE z -inf (4 WITHSCORES => [["c" 3f]]
        ZREVRANGEBYSCORE z 4 -inf => ["d" "c"]
        ZADD l 0 a 0 b 0 c => 3
        ZRANGEBYLEX l [b + => ["b" "c"]
        ZREVRANGEBYLEX l (c - => ["b" "a"]
        ZLEXCOUNT l - (c => 2
        ZLEXCOUNT l b c => !ERR min or max not valid string range item
        "#,
    );
    transcript(
        Proto::Resp2,
        r#"
        ZADD z 1.5 a 2 b => 2
        ZRANGE z 0 -1 WITHSCORES => ["a" "1.5" "b" "2"]
        ZPOPMAX z 1 => ["b" "2"]
        ZMPOP 1 z MAX => ["z" [["a" "1.5"]]]
        ZMPOP 1 z MAX => nil[]
        ZRANK z a WITHSCORE => nil[]
        "#,
    );
}

#[test]
fn what_is_made_of_sorted_sets_is_as_documented() {
    transcript(
        Proto::Resp3,
        r#"
        ZADD z 3 c 4 d 6.5 a 7 b => 4
        ZADD l 0 a 0 b 0 c => 3
        ZRANGESTORE d z 0 1 => 2
        ZINCRBY d inf c => inff
        ZINCRBY d -inf c => !ERR resulting score is not a number (NaN)
        ZUNION 2 z d WITHSCORES => [["a" 6.5f] ["b" 7f] ["d" 8f] ["c" inff]]
        ZINTER 2 z d WEIGHTS 2 1 AGGREGATE MAX WITHSCORES => [["d" 8f] ["c" inff]]
        ZDIFF 2 z d => ["a" "b"]
        ZINTERCARD 2 z d LIMIT 1 => 1
        ZUNION 0 z => !ERR at least 1 input key is needed for 'zunion' command
        ZUNION 2 z => !ERR syntax error
        ZUNION 1 z WEIGHTS x => !ERR weight value is not a float
        ZUNIONSTORE u 2 z d => 4
        ZINTERSTORE u 2 z none => 0
        EXISTS u => 0
        ZPOPMIN z => ["c" 3f]
        ZPOPMAX z 1 => [["b" 7f]]
        ZMPOP 2 none z MIN COUNT 5 => ["z" [["d" 4f] ["a" 6.5f]]]
        ZMPOP 1 z MIN => nil
        ZMPOP 1 z MIN COUNT 0 => !ERR count should be greater than 0
        BZPOPMIN d 0 => ["d" "d" 4f]
        BZPOPMIN z x => !ERR timeout is not a float or out of range
        BZPOPMIN z -1 => !ERR timeout is negative
        ZREMRANGEBYSCORE d -inf +inf => 1
        ZREMRANGEBYLEX l - [a => 1
        ZREMRANGEBYRANK l 0 0 => 1
        ZRANDMEMBER l 2 WITHSCORES => [["c" 0f]]
        ZSCAN l 0 => ["0" ["c" "0"]]
        ZREM l c c => 1
        SADD set x => 1
        ZUNION 1 set WITHSCORES => [["x" 1f]]
        ZADD set 1 a => !WRONGTYPE Operation against a key holding the wrong kind of value
        "#,
    );
}

#[test]
fn sort_and_bits_answer_as_documented() {
    transcript(
        Proto::Resp3,
        r#"
        RPUSH l 10 9 1 => 3
        SORT l => ["1" "9" "10"]
        SORT l ALPHA DESC => ["9" "10" "1"]
        SORT l LIMIT 1 1 => ["9"]
        SORT l BY nosort => ["10" "9" "1"]
        MSET w1 3 w9 2 w10 1 n1 one n10 ten => OK
        HSET h9 f nine => 1
        SORT l BY w* GET # GET n* GET h*->f => ["10" "ten" nil "9" nil "nine" "1" "one" nil]
        SORT l BY w* GET n* STORE out => 3
        LRANGE out 0 -1 => ["ten" "" "one"]
        SORT none STORE out => 0
        EXISTS out => 0
        SORT_RO l STORE out => !ERR syntax error
        SORT w1 => !WRONGTYPE Operation against a key holding the wrong kind of value
        RPUSH t a b => 2
        SORT t => !ERR One or more scores can't be converted into double
        SETBIT b 7 1 => 0
        SETBIT b 7 1 => 1
        GETBIT b 7 => 1
        GETBIT b 100 => 0
        SETBIT b 4294967296 1 => !ERR bit offset is not an integer or out of range
        SETBIT b 1 2 => !ERR bit is not an integer or out of range
        SET m foobar => OK
        BITCOUNT m => 26
        BITCOUNT m 0 0 => 4
        BITCOUNT m 5 30 BIT => 17
        BITCOUNT m 1 => !ERR syntax error
        SET p "\xff\xf0\x00" => OK
        BITPOS p 0 => 12
        BITPOS p 1 2 => -1
        BITPOS p 0 0 0 => -1
        BITPOS p 2 => !ERR The bit argument must be 1 or 0.
        BITOP AND x m p => 6
        BITOP NOT x m p => !ERR BITOP NOT must be called with a single source key.
        BITOP OR x none => 0
        EXISTS x => 0
        MSET k1 ohmytext k2 mynewtext => OK
        LCS k1 k2 => "mytext"
        LCS k1 k2 LEN => 6
        LCS k1 k2 IDX MINMATCHLEN 4 WITHMATCHLEN => {"matches": [[[4 7] [5 8] 4]] "len": 6}
        LCS k1 k2 IDX LEN => !ERR If you want both the length and indexes, please just use IDX.
        LCS l k2 => !ERR The specified keys must contain string values
        "#,
    );
}
