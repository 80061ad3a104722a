//! Records as the products of many vendors write them, written from their documentation: the time,
//! its source, the host and the type that each has under `auto`.

use forebay_events::input::{Format, Parser};
use forebay_events::{Draft, TimeSource};

use super::input::NOW_MS;

/// A product, a record, and what is read from it: source and time, host, type. `received`: it has
/// no time that is certain.
type Sample = (&'static str, &'static str, &'static str, &'static str, &'static str);

pub(crate) fn described(draft: &Draft<'_>) -> String {
    let Some(ns) = draft.timestamp_ns else { return "received".to_owned() };
    let time = jiff::Timestamp::from_nanosecond(ns.into()).unwrap();
    format!("{} {time}", draft.time_source.name())
}

#[rustfmt::skip]
const SAMPLES: &[Sample] = &[
    // Linux and network devices.
    ("rsyslog RFC 5424", "<86>1 2023-10-11T14:32:52.123456+02:00 web-1 sshd 4242 - - Accepted publickey for ann", "event 2023-10-11T12:32:52.123456Z", "web-1", "sshd"),
    ("Debian 12 auth.log", "2023-10-11T14:32:52.123456+02:00 web-1 sshd[4242]: Accepted publickey for ann from 10.0.0.9 port 4711 ssh2", "event 2023-10-11T12:32:52.123456Z", "web-1", "sshd"),
    ("Debian 12 kern.log", "2023-10-11T12:32:52.123456+00:00 web-1 kernel: [   12.345] usb 1-1: new device", "event 2023-10-11T12:32:52.123456Z", "web-1", "kernel"),
    ("BSD syslog", "<38>Feb 29 08:00:00 web-1 su[1]: session opened", "assumed 2024-02-29T08:00:00Z", "web-1", "su"),
    ("Linux auditd", "type=SYSCALL msg=audit(1697034772.123:456): arch=c000003e syscall=59 success=yes exe=\"/usr/bin/id\"", "event 2023-10-11T14:32:52.123Z", "", "SYSCALL"),
    ("Cisco ASA", "<166>Oct 11 2023 14:32:52: %ASA-6-302013: Built outbound TCP connection 1 for outside:192.0.2.1/443", "assumed 2023-10-11T14:32:52Z", "", "%ASA-6-302013"),
    ("Cisco ASA with its name", "<166>Oct 11 2023 14:32:52 asa-1 : %ASA-6-302013: Built outbound TCP connection", "assumed 2023-10-11T14:32:52Z", "asa-1", "%ASA-6-302013"),
    ("Cisco IOS", "<189>29: switch-1: *Oct 11 2023 14:32:52.123 UTC: %SYS-5-CONFIG_I: Configured from console", "event 2023-10-11T14:32:52.123Z", "switch-1", "%SYS-5-CONFIG_I"),
    ("Cisco NX-OS", "<189>: 2023 Oct 11 14:32:52 UTC: %ETHPORT-5-IF_UP: Interface Ethernet1/1 is up", "event 2023-10-11T14:32:52Z", "", "%ETHPORT-5-IF_UP"),
    ("Cisco Meraki", "<134>1 1697034772.583851938 MX84 flows src=192.168.1.2 dst=198.51.100.3 protocol=udp", "event 2023-10-11T14:32:52.583851938Z", "MX84", "flows"),
    ("Cisco Umbrella", "\"2023-10-11 14:32:52\",\"ann\",\"ann,office\",\"10.10.1.100\",\"192.0.2.4\",\"Allowed\",\"1 (A)\",\"NOERROR\",\"example.test.\"", "assumed 2023-10-11T14:32:52Z", "", ""),
    ("Cisco ASA in a file", "Oct 11 2023 14:32:52: %ASA-6-302013: Built outbound TCP connection", "assumed 2023-10-11T14:32:52Z", "", "%ASA-6-302013"),
    ("BIND by syslog", "Oct 11 14:32:52 ns-1 named[1]: 11-Oct-2022 14:32:52.123 queries: info: client", "assumed 2022-10-11T14:32:52.123Z", "ns-1", "named"),
    ("Syslog without a header", "<14>{\"timestamp\":\"2023-10-11T14:32:52Z\",\"host\":\"web-1\",\"type\":\"login\"}", "event 2023-10-11T14:32:52Z", "web-1", "login"),
    ("VMware ESXi", "<14>2023-10-11T14:32:52.123Z esx-1 Hostd: info hostd[2099] Event 42 : User root logged in", "event 2023-10-11T14:32:52.123Z", "esx-1", "Hostd"),
    ("Ubuntu logfmt", "time=\"2023-10-11T14:32:52Z\" level=warning msg=\"slow start\" component=dockerd", "event 2023-10-11T14:32:52Z", "", ""),
    ("BIND", "11-Oct-2023 14:32:52.123 queries: info: client @0x7f 10.0.0.9#4711 (example.test): query: example.test IN A", "assumed 2023-10-11T14:32:52.123Z", "", ""),
    ("Squid", "1697034772.123    345 10.0.0.9 TCP_MISS/200 1024 GET http://example.test/ ann HIER_DIRECT/192.0.2.9 text/html", "event 2023-10-11T14:32:52.123Z", "", ""),
    ("HAProxy", "<134>Feb 29 14:32:52 lb-1 haproxy[42]: 10.0.0.9:4711 [29/Feb/2024:14:32:52.655] http-in srv/s1 10/0/30/69/109 200 2750", "assumed 2024-02-29T14:32:52Z", "lb-1", "haproxy"),
    ("systemd journal", r#"{"__REALTIME_TIMESTAMP":"1697034772123456","_HOSTNAME":"web-1","SYSLOG_IDENTIFIER":"sshd","PRIORITY":"6","MESSAGE":"Accepted publickey"}"#, "event 2023-10-11T14:32:52.123456Z", "web-1", "sshd"),
    ("Heroku", "<40>1 2023-10-11T14:32:52+00:00 host app web.3 - State changed from starting to up", "event 2023-10-11T14:32:52Z", "host", "app"),
    ("klog", "I1011 14:32:52.123456       1 main.go:10] started", "assumed 2023-10-11T14:32:52.123456Z", "", ""),
    ("Hadoop's DFS", "231011 143252 148 INFO dfs.DataNode$PacketResponder: PacketResponder 1 terminating", "assumed 2023-10-11T14:32:52Z", "", ""),
    ("Android's logcat", "10-11 14:32:52.123  1702  2395 W WindowManager: printFreezingDisplayLogs", "assumed 2023-10-11T14:32:52.123Z", "", ""),
    ("Grafana", "t=2023-10-11T16:32:52+0200 lvl=eror msg=\"x\" logger=sqlstore", "event 2023-10-11T14:32:52Z", "", ""),
    // Firewalls.
    ("Fortinet FortiGate", r#"<189>date=2023-10-11 time=16:32:52 devname="fg-1" devid="FG100" eventtime=1697034772123456789 tz="+0200" logid="0000000013" type="traffic" subtype="forward" level="notice" srcip=10.0.0.9 dstip=192.0.2.9"#, "event 2023-10-11T14:32:52.123456789Z", "fg-1", "traffic"),
    ("Fortinet without eventtime", r#"date=2023-10-11 time=16:32:52 devname=fg-1 tz="+0200" type=event level=warning srcip=10.0.0.9"#, "event 2023-10-11T14:32:52Z", "fg-1", "event"),
    ("Fortinet FortiWeb", r#"date=2023-10-11 time=09:32:52 log_id=30000000 timezone="(GMT-5:00)Eastern Time(US & Canada)" type=traffic device_id=FV-1 pri=notice"#, "event 2023-10-11T14:32:52Z", "", "traffic"),
    ("Imperva CEF", "CEF:0|Incapsula|SIEMintegration|1|1|Normal|0|start=1697034772000 end=1697038372000 src=10.0.0.9", "event 2023-10-11T14:32:52Z", "", "1"),
    ("Box", r#"{"type":"event","created_at":"2023-10-11T07:32:52-07:00","recorded_at":"2023-10-11T07:33:52-07:00","event_type":"LOGIN"}"#, "event 2023-10-11T14:32:52Z", "", "event"),
    ("SonicWall", r#"<134>id=firewall sn=0017C5 time="2023-10-11 14:32:52 UTC" fw=192.0.2.1 pri=6 c=1024 m=537 msg="Connection Closed" src=10.0.0.9:4711:X0 dst=192.0.2.9:443:X1"#, "event 2023-10-11T14:32:52Z", "192.0.2.1", ""),
    ("Sophos XG", r#"<30>device="SFW" date=2023-10-11 time=16:32:52 timezone="CEST" device_name="XG230" device_id=C1 log_type="Firewall" status="Allow" src_ip=10.0.0.9 dst_ip=192.0.2.9"#, "event 2023-10-11T14:32:52Z", "XG230", "Firewall"),
    ("Stormshield", r#"id=firewall time="2023-10-11 16:32:52" fw="SN310" tz=+0200 startime="2023-10-11 16:32:51" pri=5 src=10.0.0.9 dst=192.0.2.9 logtype="connection""#, "event 2023-10-11T14:32:52Z", "SN310", "connection"),
    ("Palo Alto traffic", "<14>Oct 11 14:33:00 pa-1 1,2023/10/11 14:32:58,001801000001,TRAFFIC,end,2561,2023/10/11 14:32:52,10.0.0.9,192.0.2.9,0.0.0.0,0.0.0.0,allow-all", "assumed 2023-10-11T14:32:52Z", "pa-1", "TRAFFIC"),
    ("Palo Alto with an offset", "1,2023/10/11 16:32:58,001801000001,THREAT,url,2561,2023/10/11 16:32:52,10.0.0.9,192.0.2.9,0.0.0.0,0.0.0.0,rule,,,web,2023-10-11T16:32:53.469+02:00", "event 2023-10-11T14:32:53.469Z", "", "THREAT"),
    ("Check Point", r#"<134>1 2023-10-11T14:32:55Z cp-1 CheckPoint 4711 - [action:"Accept"; flags:"411908"; ifdir:"inbound"; time:"1697034772"; src:"10.0.0.9"; dst:"192.0.2.9"]"#, "event 2023-10-11T14:32:52Z", "cp-1", "Accept"),
    ("Check Point CEF", "CEF: 0|Check Point|VPN-1 & FireWall-1|Check Point|Log|https|Unknown|act=Accept rt=1697034772000 src=10.0.0.9 dst=192.0.2.9", "event 2023-10-11T14:32:52Z", "", "Log"),
    ("ArcSight CEF", "<134>Oct 11 14:33:00 relay CEF:0|Vendor|IPS|1|42|Scan|7|rt=Oct 11 2023 14:32:52 UTC dvchost=ips-1 src=10.0.0.9", "event 2023-10-11T14:32:52Z", "ips-1", "42"),
    ("Trend Micro CEF", "CEF:0|Trend Micro|Deep Security Agent|20|1001|Rule|5|rt=2023-10-11T14:32:52.000Z dvchost=ws-1", "event 2023-10-11T14:32:52Z", "ws-1", "1001"),
    ("QRadar LEEF", "LEEF:2.0|Vendor|Proxy|3|Deny|^|devTime=Oct 11 2023 14:32:52 GMT^src=10.0.0.9^identHostName=px-1", "event 2023-10-11T14:32:52Z", "px-1", "Deny"),
    ("Juniper SRX", "<14>1 2023-10-11T14:32:52.123Z srx-1 RT_FLOW - RT_FLOW_SESSION_CREATE [junos@2636.1.1.1.2.26 source-address=\"10.0.0.9\"] session created", "event 2023-10-11T14:32:52.123Z", "srx-1", "RT_FLOW"),
    ("Sophos in an ambiguous zone", r#"device="SFW" date=2023-10-11 time=16:32:52 timezone="CST" device_name="XG230" log_type="Firewall""#, "received", "XG230", "Firewall"),
    ("PostgreSQL", "2023-10-11 16:32:52.123 +02 [123] LOG:  checkpoint starting", "event 2023-10-11T14:32:52.123Z", "", ""),
    ("PostgreSQL in UTC", "2023-10-11 14:32:52.123 UTC [123] ann@shop ERROR:  relation does not exist", "event 2023-10-11T14:32:52.123Z", "", ""),
    ("Go", r#"{"time":"2023-10-11 14:32:52.123456 +0000 UTC","msg":"x"}"#, "event 2023-10-11T14:32:52.123456Z", "", ""),
    ("Time in a list", r#"{"app":"shop","steps":[{"step_time":"2023-10-11T14:32:52Z"}]}"#, "event 2023-10-11T14:32:52Z", "", ""),
    // Web servers.
    ("Apache access", "10.0.0.9 - ann [11/Oct/2023:16:32:52 +0200] \"GET /a.gif HTTP/1.0\" 200 2326 \"-\" \"curl/8\"", "event 2023-10-11T14:32:52Z", "", "access"),
    ("Apache with virtual hosts", "shop.test:443 10.0.0.9 - - [11/Oct/2023:16:32:52 +0200] \"GET / HTTP/1.1\" 200 5", "event 2023-10-11T14:32:52Z", "shop.test:443", "access"),
    ("Apache error", "[Wed Oct 11 14:32:52.123456 2023] [core:error] [pid 42:tid 43] [client 10.0.0.9:4711] AH00037: not allowed", "assumed 2023-10-11T14:32:52.123456Z", "", "core"),
    ("nginx error", "2023/10/11 14:32:52 [error] 42#42: *7 open() failed (2: No such file), client: 10.0.0.9, server: shop.test", "assumed 2023-10-11T14:32:52Z", "", ""),
    ("nginx access by syslog", "<190>Oct 11 14:32:55 web-1 nginx: 10.0.0.9 - - [11/Oct/2023:14:32:52 +0000] \"GET / HTTP/1.1\" 200 612", "event 2023-10-11T14:32:52Z", "web-1", "access"),
    ("nginx JSON", r#"{"time_local":"11/Oct/2023:16:32:52 +0200","remote_addr":"10.0.0.9","request":"GET / HTTP/1.1","status":"200","request_time":"0.004","hostname":"web-1"}"#, "event 2023-10-11T14:32:52Z", "web-1", ""),
    ("Amazon S3 access", "79a5 bucket-1 [11/Oct/2023:14:32:52 +0000] 192.0.2.3 79a5 3E57 REST.GET.OBJECT a.txt \"GET /a.txt HTTP/1.1\" 200", "event 2023-10-11T14:32:52Z", "", ""),
    ("Python logging", "2023-10-11 14:32:52,123 ERROR shop.orders cannot connect", "assumed 2023-10-11T14:32:52.123Z", "", ""),
    ("Java in brackets", "[2023-10-11T14:32:52,123][WARN ][o.e.c.r.a.AllocationService] [node-1] high disk watermark", "assumed 2023-10-11T14:32:52.123Z", "", ""),
    // Machines.
    ("Palo Alto system log", "1,2023/10/11 14:32:58,001801000001,SYSTEM,auth,2561,2023/10/11 14:32:52,,auth-success,p,0,0,general,informational,\"a, b\",77,0x8000000000000000,12,34,0,0,,pa-1,0", "assumed 2023-10-11T14:32:52Z", "pa-1", "SYSTEM"),
    ("Palo Alto traffic with its name", "1,2023/10/11 14:32:58,001801000001,TRAFFIC,end,2561,2023/10/11 14:32:52,10.0.0.9,192.0.2.9,,,r,,,ssl,vsys1,a,b,e1,e2,L,,1,1,1,2,0,0,0x41c,tcp,allow,5,7,8,5,2023/10/11 14:32:14,0,any,,77,0x0,ES,US,,7,7,tcp-fin,0,0,0,0,,pa-1,from-policy", "assumed 2023-10-11T14:32:52Z", "pa-1", "TRAFFIC"),
    ("Fortinet with the host of a request", r#"devname="fg-1" devid="FG100" type="utm" eventtime=1697034772 srcip=10.0.0.9 hostname="shop.test" url="/a""#, "event 2023-10-11T14:32:52Z", "fg-1", "utm"),
    ("Azure's Windows agent", r#"{"time":"2023-10-11T14:32:52Z","category":"WindowsEventLogsTable","properties":{"EventId":4719,"Channel":"Security","ProviderName":"P","RawXml":"<Event xmlns='x'><System><Provider Name='P'/><EventID>4719</EventID><Channel>Security</Channel><Computer>ws-1</Computer><TimeCreated SystemTime='2023-10-11T14:32:52Z'/></System></Event>"}}"#, "event 2023-10-11T14:32:52Z", "ws-1", "Security/4719"),
    ("Trellix ePO of another version", "<?xml version=\"1.0\"?><EPOevent><MachineInfo><MachineName>ws-1</MachineName></MachineInfo><Event><EventID>1048</EventID><GMTTime>2023-10-11T14:32:52</GMTTime></Event></EPOevent>", "event 2023-10-11T14:32:52Z", "ws-1", "1048"),
    // Several times in one record.
    ("Detection and its storage", r#"{"event_type":"dns","timestamp_detected":"2023-10-11T14:32:52Z","@timestamp":"2023-10-11T14:40:00Z","timestamp_analyzed":"2023-10-11T14:40:00Z"}"#, "event 2023-10-11T14:32:52Z", "", "dns"),
    ("WithSecure Elements", r#"{"severity":"warning","serverTimestamp":"2023-10-11T14:33:09.1Z","engine":"scan","details":{"clientTimestamp":"1697034772000"},"persistenceTimestamp":"2023-10-11T14:33:12Z"}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("Wiz finding", r#"{"id":"f-1","firstSeenAt":"2023-10-01T14:32:52Z","analyzedAt":"2023-10-11T14:32:52Z","severity":"HIGH"}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("Cybereason malop", r#"{"@class":".MalopInboxModel","guid":"11.2","creationTime":1696034772000,"lastUpdateTime":1697034772000}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("ExtraHop detection", r#"{"id":7,"start_time":1696034772000,"update_time":1697030000000,"mod_time":1697034772000,"title":"Weak cipher"}"#, "event 2023-10-11T14:32:52Z", "", "Weak cipher"),
    ("Exchange message trace", r#"{"MessageTraceId":"1","Received":"/Date(1697034772000)/","StartDate":"/Date(1696034772000)/","EndDate":"/Date(1697044772000)/"}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("Received bytes", r#"{"app":"proxy","received":1597034772,"start":"2023-10-11T14:32:52Z"}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("SentinelOne activity", r#"{"activityType":5126,"createdAt":"2023-10-11T14:32:52Z","data":{"eventTime":"2023-10-11T14:32:40Z"},"updatedAt":"2023-10-11T14:32:53Z"}"#, "event 2023-10-11T14:32:52Z", "", "5126"),
    ("CrowdStrike Falcon", r#"{"metadata":{"eventType":"FirewallMatchEvent","eventCreationTime":1697034772000},"event":{"Timestamp":1697034770}}"#, "event 2023-10-11T14:32:52Z", "", "FirewallMatchEvent"),
    ("osquery", r#"{"name":"logins","hostIdentifier":"ws-1","calendarTime":"Wed Oct 11 14:32:52 2023 UTC","unixTime":1697034772,"epoch":1690000000,"columns":{"time":"1690000001"}}"#, "event 2023-10-11T14:32:52Z", "ws-1", "logins"),
    ("osquery with a column of its table", r#"{"unix_time":1697034772,"epoch":1690000000,"time":1690000001}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("Winlogbeat with Sysmon", r#"{"@timestamp":"2023-10-11T14:32:52Z","winlog":{"event_data":{"UtcTime":"2023-10-11 14:32:51.9"},"event_id":1,"channel":"Sysmon","computer_name":"ws-1"}}"#, "event 2023-10-11T14:32:52Z", "ws-1", "Sysmon/1"),
    ("Check Point Harmony", r#"{"event":{"security_event":{"time":"2023-10-11T14:32:52Z","entity_info":{"entity_created":"2023-10-11T14:32:40Z"}}}}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("Trellix EDR", r#"{"type":"alerts","attributes":{"detectionDate":"2023-10-11T14:40:00Z","eventDate":"2023-10-11T14:32:52Z"}}"#, "event 2023-10-11T14:32:52Z", "", "alerts"),
    ("vCenter", r"Event [1111111111] [1-1] [2023-10-11T14:32:52.123Z] [vim.event.EventEx] [info] [ann] [] [42] [x]", "event 2023-10-11T14:32:52.123Z", "", ""),
    ("Envoy in vCenter", r#"2023-10-11T14:32:52.123Z info envoy[42] [Originator@6876 sub=Default] [2023-10-11T14:32:51.450Z] "GET /stats HTTP/1.1" 200 -"#, "event 2023-10-11T14:32:52.123Z", "", ""),
    ("Palo Alto with a time for a name", "1,2023/10/11 16:32:58,001801000001,THREAT,url,2561,2023/10/11 16:32:52,10.0.0.9,192.0.2.9,,,rule,2020-01-01T00:00:00.000+00:00,,web,2023-10-11T16:32:53.469+02:00", "event 2023-10-11T14:32:53.469Z", "", "THREAT"),
    ("Palo Alto from a spreadsheet", "<14>Oct 13 14:33:00 pa-1 1,10/13/23 14:32,001801000001,TRAFFIC,end,2561,10/13/23 14:32,10.0.0.9,192.0.2.9,,,allow-all", "assumed 2023-10-13T14:32:00Z", "pa-1", "TRAFFIC"),
    ("Azure flow", "{\"time\":\"2023-10-11T14:40:01.5+00:00\",\"operationName\":\"FlowLogFlowEvent\",\"flow.0\":\"1697034772125,10.0.0.9,192.0.2.9,23956,443,6,O,B,NX,0,0,0,0\"}", "event 2023-10-11T14:32:52.125Z", "", "FlowLogFlowEvent"),
    ("Azure flow of a security group", "{\"time\":\"2023-10-11T14:32:52.125Z\",\"operationName\":\"NetworkSecurityGroupFlowEvents\",\"flow.0\":\"1697034701,10.0.0.9,192.0.2.9,35370,23,T,I,A,B,,,,\"}", "event 2023-10-11T14:32:52.125Z", "", "NetworkSecurityGroupFlowEvents"),
    ("SonicWall SMA", "id=sslvpn sn=1 time=\"2023-10-11 16:32:52\" vp_time=\"2023-10-11 14:32:52 UTC\" fw=10.0.0.1 pri=5 m=1 src=10.0.0.9 msg=\"User login successful\"", "event 2023-10-11T14:32:52Z", "10.0.0.1", ""),
    ("Trellix network sensor", "CEF:0|Trellix|MPS|10.0.0|MO|malware-object|4|rt=Oct 12 2023 09:00:00 UTC start=Oct 11 2023 14:32:52 UTC src=10.0.0.9 dvchost=nx-1", "event 2023-10-11T14:32:52Z", "nx-1", "MO"),
    ("Cisco in Brazil", "<189>sw-1: Oct 11 11:32:52.125 BRT: %IP-4-DUPADDR: Duplicate address", "event 2023-10-11T14:32:52.125Z", "sw-1", "%IP-4-DUPADDR"),
    ("Palo Alto after a colon", ": 1,2023/10/11 16:32:58,026701002348,SYSTEM,general,2816,2023/10/11 16:32:52,,general,,0,2023-10-11T16:32:52.705+02:00", "event 2023-10-11T14:32:52.705Z", "", "SYSTEM"),
    ("A number after a time", "Oct 11 2023 14:32:52,026701002348,start", "assumed 2023-10-11T14:32:52Z", "", ""),
    ("FortiGate CEF", "CEF:0|Fortinet|Fortigate|v6.2.9|32102|event:system|7|FortinetFortiGateeventtime=1697034772541881380 FortinetFortiGatetz=+0200", "event 2023-10-11T14:32:52.54188138Z", "", "32102"),
    ("FortiGate CEF with a local start", "CEF:0|Fortinet|FortiGate|5.6|20|traffic|5|start=Oct 11 2023 16:32:52 ad.eventtime=1697034772 src=10.0.0.9", "event 2023-10-11T14:32:52Z", "", "20"),
    ("Claroty CEF", "CEF:0|Claroty|xDome|1.0|7|Login|5|event_description=x event_timestamp=2023-10-11T14:32:52.5+00:00 src_ip=10.0.0.9", "event 2023-10-11T14:32:52.5Z", "", "7"),
    ("Bitdefender CEF", "CEF:0|Bitdefender|GravityZone|6|10|AntiMalware|9|dvchost=ws-1 BitdefenderGZDetectionTime=2023-10-11T14:32:52.000Z suser=ann", "event 2023-10-11T14:32:52Z", "ws-1", "10"),
    ("Cisco ESA CEF", "CEF:0|Cisco|ESA|14|LOG|Consolidated|5|endTime=Wed Oct 11 14:34:52 2023 dvc=10.0.0.9 startTime=Wed Oct 11 14:32:52 2023", "assumed 2023-10-11T14:32:52Z", "", "LOG"),
    ("IBM i CEF", "CEF:0|IBM|IBM i|7.4|MSGMON|CPF0907|5|cat=MSG rt=2023-10-11-14.32.52.886549 shost=I5", "assumed 2023-10-11T14:32:52.886549Z", "I5", "MSGMON"),
    ("Symantec risk", "Virus found,IP Address: 10.0.0.9,Computer name: ws-1,Event time: 2023-10-11 14:32:52,Event Insert Time: 2023-10-11 14:34:52,End Time: 2023-10-11 14:32:59", "assumed 2023-10-11T14:32:52Z", "", ""),
    ("Symantec scan", "Scan ID: 16,Begin: 2023-10-11 14:30:52,End Time: 2023-10-11 14:32:52,Completed,Duration (seconds): 120", "assumed 2023-10-11T14:32:52Z", "", ""),
    ("Symantec scan that began", "Scan ID: 16,Begin: 2023-10-11 14:32:52,Started,Duration (seconds): 0", "assumed 2023-10-11T14:32:52Z", "", ""),
    ("Cisco Secure Web Appliance", "Info: 1697034772.123 7 10.0.0.9 TCP_MISS/302 779 HEAD http://a.test/ - DIRECT/a.test text/html", "event 2023-10-11T14:32:52.123Z", "", ""),
    ("A number after a name", "Id: 1697034772123 stored", "received", "", ""),
    ("NetScaler in quotes", r#""2023/10/11:14:32:52  ADC 0-PPE-1 : default SNMP TRAP_SENT 0 0 : x""#, "assumed 2023-10-11T14:32:52Z", "", ""),
    ("Veeam", r#"[categoryId=0 ServerName="backup-1" DateTime="10/31/2023 14:32:52" Platform="6"]"#, "assumed 2023-10-31T14:32:52Z", "backup-1", ""),
    ("Pairs in brackets before a time", "[thread=main request=42] 2023-10-11T14:32:52Z started", "event 2023-10-11T14:32:52Z", "", ""),
    ("Cyberwatch", "active='true',computer_name='ws-1', created_at='2023-10-11 16:32:52 +0200',cve_level='high'", "event 2023-10-11T14:32:52Z", "ws-1", ""),
    ("Trellix ePO", "<?xml version=\"1.0\"?><EPOEvent><MachineInfo><MachineName>ws-1</MachineName><IPAddress>10.0.0.9</IPAddress></MachineInfo><Event><EventID>1048</EventID><GMTTime>2023-10-11T14:32:52</GMTTime></Event></EPOEvent>", "event 2023-10-11T14:32:52Z", "ws-1", "1048"),
    ("CEE after a byte order mark", "\u{feff}@cee: {\"category\":\"USER\",\"beginDate\":\"2023-10-11T16:30:00+02:00\",\"timestamp\":\"2023-10-11T16:32:52+02:00\"}", "event 2023-10-11T14:32:52Z", "", "USER"),
    // Clouds.
    ("AWS CloudTrail", r#"{"eventVersion":"1.08","eventTime":"2023-10-11T14:32:52Z","eventSource":"s3.amazonaws.com","eventName":"GetObject","awsRegion":"eu-west-1","sourceIPAddress":"192.0.2.4","eventID":"8f4a0b6e-3c1d-4b57-9a52-0f6a1f7d2c11","eventType":"AwsApiCall"}"#, "event 2023-10-11T14:32:52Z", "", "GetObject"),
    ("AWS VPC flow", "2 123456789010 eni-1235b8ca 10.0.0.9 192.0.2.9 4711 443 6 20 4249 1697034772 1697034832 ACCEPT OK", "event 2023-10-11T14:32:52Z", "", "ACCEPT"),
    ("AWS ALB", "https 2023-10-11T14:32:52.186641Z app/lb/50dc6c 192.0.2.9:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 \"GET https://a.test/ HTTP/1.1\"", "event 2023-10-11T14:32:52.186641Z", "", ""),
    ("AWS WAF", r#"{"timestamp":1697034772123,"formatVersion":1,"webaclId":"acl","action":"BLOCK","httpRequest":{"clientIp":"192.0.2.4","country":"FR"}}"#, "event 2023-10-11T14:32:52.123Z", "", "BLOCK"),
    ("AWS GuardDuty", r#"{"schemaVersion":"2.0","id":"b2","region":"eu-west-1","type":"Recon:EC2/Portscan","severity":2,"createdAt":"2023-10-11T14:32:52.123Z","updatedAt":"2023-10-12T08:00:00.000Z"}"#, "event 2023-10-11T14:32:52.123Z", "", "Recon:EC2/Portscan"),
    ("Azure sign-in", r#"{"time":"2023-10-11T14:32:52.1234567Z","operationName":"Sign-in activity","category":"SignInLogs","callerIpAddress":"192.0.2.4","properties":{"createdDateTime":"2023-10-11T14:30:00Z"}}"#, "event 2023-10-11T14:32:52.1234567Z", "", "Sign-in activity"),
    ("Microsoft Graph audit", r#"{"id":"Dir_1","category":"UserManagement","activityDateTime":"2023-10-11T14:32:52.1234567Z","activityDisplayName":"Add user"}"#, "event 2023-10-11T14:32:52.1234567Z", "", "Add user"),
    ("Office 365", r#"{"CreationTime":"2023-10-11T14:32:52","Id":"0191e4a8-7c3b-7c52-9b3d-0f2a6c1d4e5f","Operation":"UserLoggedIn","Workload":"AzureActiveDirectory","ClientIP":"192.0.2.4:4711","UserId":"ann@example.test"}"#, "event 2023-10-11T14:32:52Z", "", "UserLoggedIn"),
    ("Google Cloud audit", r#"{"protoPayload":{"serviceName":"compute.googleapis.com","methodName":"v1.compute.instances.insert","requestMetadata":{"callerIp":"192.0.2.4"}},"resource":{"type":"gce_instance","labels":{"instance_id":"42"}},"timestamp":"2023-10-11T14:32:52.123Z","receiveTimestamp":"2023-10-11T14:32:59Z","severity":"NOTICE"}"#, "event 2023-10-11T14:32:52.123Z", "42", "v1.compute.instances.insert"),
    ("Google Workspace", r#"{"kind":"admin#reports#activity","id":{"time":"2023-10-11T14:32:52.123Z","applicationName":"login"},"ipAddress":"192.0.2.4","events":[{"type":"login","name":"login_success"}]}"#, "event 2023-10-11T14:32:52.123Z", "", "admin#reports#activity"),
    ("Cloudflare HTTP", r#"{"ClientIP":"192.0.2.4","ClientRequestHost":"a.test","EdgeStartTimestamp":1697034772123456789,"EdgeEndTimestamp":1697034773123456789,"EdgeResponseStatus":200}"#, "event 2023-10-11T14:32:52.123456789Z", "", ""),
    ("Cloudflare audit", r#"{"ActionType":"login","ActorIP":"192.0.2.4","ID":"1","When":"2023-10-11T14:32:52Z"}"#, "event 2023-10-11T14:32:52Z", "", ""),
    // Identity and mail.
    ("Okta", r#"{"actor":{"type":"User"},"client":{"ipAddress":"192.0.2.4"},"eventType":"user.session.start","published":"2023-10-11T14:32:52.123Z","severity":"INFO","uuid":"x"}"#, "event 2023-10-11T14:32:52.123Z", "", "user.session.start"),
    ("Duo", r#"{"access_device":{"ip":"192.0.2.4"},"event_type":"authentication","isotimestamp":"2023-10-11T14:32:52.123456+00:00","timestamp":1697034772,"factor":"duo_push"}"#, "event 2023-10-11T14:32:52.123456Z", "", "authentication"),
    ("JumpCloud", r#"{"event_type":"user_login_attempt","timestamp":"2023-10-11T14:32:52.123Z","client_ip":"192.0.2.4","service":"directory"}"#, "event 2023-10-11T14:32:52.123Z", "", "user_login_attempt"),
    ("GitHub audit", r#"{"@timestamp":1697034772123,"_document_id":"a","action":"repo.create","actor":"ann","created_at":1697034772123,"org":"o"}"#, "event 2023-10-11T14:32:52.123Z", "", "repo.create"),
    ("Proofpoint TAP", r#"{"GUID":"a","messageTime":"2023-10-11T14:32:52.000Z","sender":"a@example.test","senderIP":"192.0.2.4","threatsInfoMap":[]}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("Mimecast", r#"{"datetime":"2023-10-11T16:32:52+0200","aCode":"x","Sender":"a@example.test","act":"Acc","IP":"192.0.2.4"}"#, "event 2023-10-11T14:32:52Z", "", ""),
    ("Salesforce", r#"{"EVENT_TYPE":"Login","TIMESTAMP":"20231011143252.123","TIMESTAMP_DERIVED":"2023-10-11T14:32:52.123Z","CLIENT_IP":"192.0.2.4"}"#, "assumed 2023-10-11T14:32:52.123Z", "", "Login"),
    // Endpoints.
    ("Winlogbeat", r#"{"@timestamp":"2023-10-11T14:32:52.123Z","agent":{"type":"winlogbeat","name":"wec-1"},"host":{"name":"wec-1"},"event":{"code":"4625","created":"2023-10-11T14:33:10Z","kind":"event"},"winlog":{"channel":"Security","computer_name":"ws-1.example.test","event_id":"4625"},"log":{"level":"information"}}"#, "event 2023-10-11T14:32:52.123Z", "ws-1.example.test", "Security/4625"),
    ("NXLog", r#"{"EventTime":"2023-10-11 14:32:52","Hostname":"ws-1","Keywords":-9214364837600034816,"EventType":"AUDIT_SUCCESS","SeverityValue":2,"Severity":"INFO","EventID":4624,"SourceName":"Microsoft-Windows-Security-Auditing","Channel":"Security","EventReceivedTime":"2023-10-11 14:32:54"}"#, "assumed 2023-10-11T14:32:52Z", "ws-1", "Security/4624"),
    ("NXLog Sysmon", r#"{"EventTime":"2023-10-11 16:32:52","Hostname":"ws-1","EventID":1,"Channel":"Microsoft-Windows-Sysmon/Operational","UtcTime":"2023-10-11 14:32:52.123"}"#, "event 2023-10-11T14:32:52.123Z", "ws-1", "Microsoft-Windows-Sysmon/Operational/1"),
    ("Windows XML", r#"<Event xmlns="http://schemas.microsoft.com/win/2004/08/events/event"><System><Provider Name="Microsoft-Windows-Security-Auditing"/><EventID>4624</EventID><Level>0</Level><TimeCreated SystemTime="2023-10-11T14:32:52.1234567Z"/><Channel>Security</Channel><Computer>ws-1.example.test</Computer></System><EventData/></Event>"#, "event 2023-10-11T14:32:52.1234567Z", "ws-1.example.test", "Security/4624"),
    ("Windows as JSON", r##"{"Event":{"System":{"Provider":{"#attributes":{"Name":"Service Control Manager"}},"EventID":7036,"Level":4,"TimeCreated":{"#attributes":{"SystemTime":"2023-10-11T14:32:52.123456Z"}},"Channel":"System","Computer":"ws-1"}}}"##, "event 2023-10-11T14:32:52.123456Z", "ws-1", "System/7036"),
    ("SentinelOne", r#"{"activityType":27,"agentId":"1","createdAt":"2023-10-11T14:32:52.123456Z","updatedAt":"2023-10-11T14:33:52.123456Z","data":{"computerName":"ws-1"},"primaryDescription":"x"}"#, "event 2023-10-11T14:32:52.123456Z", "ws-1", "27"),
    ("CrowdStrike alert", r#"{"metadata":{"customerIDString":"c","offset":7,"eventType":"DetectionSummaryEvent","eventCreationTime":1697034772000,"version":"1.0"},"event":{"ComputerName":"ws-1","Severity":4}}"#, "event 2023-10-11T14:32:52Z", "ws-1", "DetectionSummaryEvent"),
    ("CrowdStrike telemetry", r#"{"event_simpleName":"ProcessRollup2","timestamp":"1697034772123","aip":"192.0.2.4","ComputerName":"ws-1","id":"x"}"#, "event 2023-10-11T14:32:52.123Z", "ws-1", "ProcessRollup2"),
    ("osquery", r#"{"name":"pack_users","hostIdentifier":"ws-1","calendarTime":"Wed Oct 11 14:32:52 2023 UTC","unixTime":1697034772,"epoch":0,"counter":7,"columns":{"uid":"0"},"action":"added"}"#, "event 2023-10-11T14:32:52Z", "ws-1", "added"),
    ("Microsoft Defender", r#"{"time":"2023-10-11T14:32:55.0Z","category":"AdvancedHunting-DeviceLogonEvents","properties":{"Timestamp":"2023-10-11T14:32:52Z","DeviceName":"ws-1","ActionType":"LogonSuccess"}}"#, "event 2023-10-11T14:32:52Z", "ws-1", "AdvancedHunting-DeviceLogonEvents"),
    ("ESET Protect", r#"{"event_type":"Threat_Event","ipv4":"10.0.0.9","hostname":"ws-1","source_uuid":"u","occured":"11-Oct-2023 14:32:52","severity":"Warning"}"#, "assumed 2023-10-11T14:32:52Z", "ws-1", "Threat_Event"),
    ("HarfangLab", r#"{"@timestamp":"2023-10-11T14:32:53Z","@event_create_date":"2023-10-11T14:32:52Z","alert_type":"rule","agent":{"hostname":"ws-1"}}"#, "event 2023-10-11T14:32:52Z", "ws-1", "rule"),
    // Containers and collectors.
    ("Kubernetes audit", r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"8f4a0b6e-3c1d-4b57-9a52-0f6a1f7d2c11","stage":"ResponseComplete","requestURI":"/api/v1/pods","verb":"list","user":{"username":"ann"},"sourceIPs":["10.0.0.9"],"requestReceivedTimestamp":"2023-10-11T14:32:52.123456Z","stageTimestamp":"2023-10-11T14:32:52.200000Z"}"#, "event 2023-10-11T14:32:52.123456Z", "", "list"),
    ("CRI container log", "2023-10-11T14:32:52.669794202Z stdout F order 42 accepted", "event 2023-10-11T14:32:52.669794202Z", "", ""),
    ("Docker container log", r#"{"log":"order 42 accepted\n","stream":"stdout","time":"2023-10-11T14:32:52.123456789Z"}"#, "event 2023-10-11T14:32:52.123456789Z", "", ""),
    ("GELF", r#"{"version":"1.1","host":"web-1","short_message":"down","timestamp":1697034772.1234,"level":6,"_facility":"app"}"#, "event 2023-10-11T14:32:52.1234Z", "web-1", ""),
    ("Splunk HEC", r#"{"time":1697034772.123,"host":"web-1","source":"app","sourcetype":"_json","event":{"action":"login"}}"#, "event 2023-10-11T14:32:52.123Z", "web-1", "login"),
    ("Fluent with a syslog line", r#"{"stream":"auth","message":"<38>1 2023-10-11T14:32:52Z web-1 su 1 - - session opened"}"#, "event 2023-10-11T14:32:52Z", "web-1", "su"),
    ("Collector with an access log", r#"{"file":"access.log","message":"10.0.0.9 - - [11/Oct/2023:14:32:52 +0000] \"GET / HTTP/1.1\" 200 5"}"#, "event 2023-10-11T14:32:52Z", "", "access"),
    ("log4j2 JSON", r#"{"instant":{"epochSecond":1697034772,"nanoOfSecond":123456789},"thread":"main","level":"WARN","loggerName":"shop","message":"x"}"#, "event 2023-10-11T14:32:52.123456789Z", "", ""),
    ("Syslog with JSON", r#"<134>Oct 11 14:33:10 relay-1 app: {"timestamp":"2023-10-11T14:32:52.5Z","host":"web-1","type":"login"}"#, "event 2023-10-11T14:32:52.5Z", "web-1", "login"),
    // Network sensors.
    ("Zeek", r#"{"_path":"dns","ts":1697034772.123456,"uid":"C1","id.orig_h":"10.0.0.9","id.resp_h":"192.0.2.9"}"#, "event 2023-10-11T14:32:52.123456Z", "", "dns"),
    ("Suricata", r#"{"timestamp":"2023-10-11T16:32:52.123456+0200","flow_id":1,"event_type":"dns","src_ip":"10.0.0.9","dest_ip":"192.0.2.9"}"#, "event 2023-10-11T14:32:52.123456Z", "", "dns"),
    ("OCSF in seconds", r#"{"class_uid":4001,"class_name":"Network Activity","time":1697034772,"severity_id":1,"metadata":{"version":"1.1.0"},"device":{"hostname":"fw-1"}}"#, "event 2023-10-11T14:32:52Z", "fw-1", "Network Activity"),
    ("Zscaler NSS", r#"{"sourcetype":"zscalernss-web","event":{"datetime":"Wed Oct 11 14:32:52 2023","reason":"Allowed","devicehostname":"ws-1"}}"#, "assumed 2023-10-11T14:32:52Z", "ws-1", "zscalernss-web"),
    ("Zscaler ZPA", r#"{"LogTimestamp":"Wed Oct 11 14:32:52 2023","Customer":"c","SessionID":"s","Hostname":"ws-1"}"#, "assumed 2023-10-11T14:32:52Z", "ws-1", ""),
    ("Netskope", r#"{"_insertion_epoch_timestamp":1697034800,"timestamp":1697034772,"type":"nspolicy","activity":"Download","hostname":"ws-1","srcip":"192.0.2.4"}"#, "event 2023-10-11T14:32:52Z", "ws-1", "nspolicy"),
    ("Darktrace", r#"{"creationTime":1697034775000,"time":1697034772000,"model":{"name":"Beacon"},"device":{"hostname":"ws-1","ip":"10.0.0.9"},"score":0.7}"#, "event 2023-10-11T14:32:52Z", "ws-1", ""),
    ("Only one value is a time", r#"{"app":"shop","order_time":"2023-10-11T14:32:52Z","delivery":{"updated_at":"2023-10-12T08:00:00Z"}}"#, "event 2023-10-11T14:32:52Z", "", ""),
    // What is not certain is not guessed.
    ("Two times of equal weight", r#"{"app":"shop","order_time":"2023-10-11T14:32:52Z","pickup_time":"2023-10-12T08:00:00Z"}"#, "received", "", ""),
    ("A date that can be read in two ways", r#"{"timestamp":"10/11/2023 02:32:52 PM","app":"shop"}"#, "received", "", ""),
    ("Only another time", r#"{"app":"shop","password_last_set":"2023-10-11T14:32:52Z","cert_valid_from":1697034772}"#, "received", "", ""),
    ("Only a number", r#"{"app":"shop","counter":1697034772,"timeout":1697034772}"#, "received", "", ""),
    ("A time that the line mentions", "password of ann expires 2025-01-01T00:00:00Z", "received", "", ""),
    ("A time late in the line", "the lease of 10.0.0.9 was renewed, it ends 2025-01-01T00:00:00Z", "received", "", ""),
    ("A message that mentions a time", "<38>Feb 29 08:00:00 web-1 app: session valid to 2025-01-01T00:00:00Z", "assumed 2024-02-29T08:00:00Z", "web-1", "app"),
    ("A line without a time", "worker 7 started, 2023 jobs", "received", "", ""),
];

#[test]
fn products_have_their_times_hosts_and_types_under_auto() {
    let mut wrong = Vec::new();
    for (product, line, time, host, kind) in SAMPLES {
        let mut found = Vec::new();
        Parser::at(Format::Auto, NOW_MS).parse_each(line.as_bytes(), &mut |draft| {
            found.push(match draft {
                Ok(draft) => (described(&draft), draft.host.into_owned(), draft.kind.into_owned()),
                Err(reject) => (reject.to_string(), String::new(), String::new()),
            });
        });
        let expected = ((*time).to_owned(), (*host).to_owned(), (*kind).to_owned());
        if found != [expected] {
            wrong.push(format!("{product}: {found:?}"));
        }
    }
    let (count, right) = (SAMPLES.len(), SAMPLES.len() - wrong.len());
    assert!(wrong.is_empty(), "{right} of {count} are right; wrong:\n{}", wrong.join("\n"));
}

#[test]
fn levels_are_on_the_scale_of_their_source() {
    let severity = |line: &str| {
        let mut parser = Parser::at(Format::Auto, NOW_MS);
        parser.parse(line.as_bytes()).unwrap().unwrap().severity.name()
    };
    let gelf = |level: u8| {
        format!(r#"{{"version":"1.1","host":"h","short_message":"m","level":{level}}}"#)
    };
    let names = (0..8).map(|level| severity(&gelf(level)));
    let expected = [
        "fatal",
        "critical",
        "critical",
        "high",
        "medium",
        "low",
        "informational",
        "informational",
    ];
    assert!(names.eq(expected));
    assert_eq!(severity(r#"{"__REALTIME_TIMESTAMP":"1697034772123456","PRIORITY":"3"}"#), "high");
    assert_eq!(severity(r#"{"EventID":1,"Channel":"System","Level":2}"#), "high");
    assert_eq!(severity(r#"{"EventID":1,"Channel":"Security","Level":0}"#), "informational");
    // A number on a scale that is not known.
    assert_eq!(severity(r#"{"level":6}"#), "unknown");
    assert_eq!(severity(r#"{"level":"error"}"#), "high");
    assert_eq!(severity("2023/10/11 14:32:52 [warn] 1#1: x"), "medium");
}

#[test]
fn a_level_in_a_line_counts_only_at_its_place() {
    for (line, expected) in [
        ("2023/10/10 13:55:36 no error found", "unknown"),
        ("2023/10/10 13:55:36 critical path computed", "unknown"),
        ("2023/10/10 13:55:36 no ERROR found", "unknown"),
        ("2023/10/10 13:55:36 main.go:23: error: cannot open x", "high"),
        ("2023/10/10 13:55:36 ERROR cannot open x", "high"),
        ("2023-10-10 13:55:36.123 UTC [1] STATEMENT:  select critical from x", "unknown"),
        ("2023-10-10 13:55:36.123 UTC [1] LOG:  error in FATAL x", "informational"),
        ("2023-10-10 13:55:36.123 UTC [1] DEBUG2:  error in x", "informational"),
        ("2023-10-10 13:55:36.123 UTC [1] ann@shop FATAL:  x", "fatal"),
        ("2023-10-10 13:55:36.123 UTC [1] PANIC:  x", "fatal"),
        ("2023-10-10 13:55:36.123 UTC [1] an error of x", "unknown"),
        ("2023-10-10 13:55:36,123 [main] FATAL x - y", "fatal"),
        ("2023-10-10 13:55:36,123 [main] INFO x - ERROR", "informational"),
        ("2023-10-10 13:55:36,123 - shop.orders - WARNING - x", "medium"),
        ("2023-10-10 13:55:36.123 | ERROR    | shop:f:1 - x", "high"),
        ("2023-10-10T13:55:36Z\terror\tshop/main.go:1\tx", "high"),
        ("[2023-10-11T14:32:52,123][WARN ][o.e.c] [node-1] x", "medium"),
        ("[Wed Oct 11 14:32:52.123456 2023] [core:warn] [pid 42] x", "medium"),
        ("2023/10/11 14:32:52 [crit] 1#1: x", "critical"),
        ("11-Oct-2023 14:32:52.123 queries: error: client", "high"),
    ] {
        let draft = Parser::at(Format::Auto, NOW_MS).parse(line.as_bytes()).unwrap().unwrap();
        assert_eq!(draft.severity.name(), expected, "{line}");
    }
}

#[test]
fn products_that_have_their_own_scale_of_severity_are_read_by_it() {
    let with = |record: &str, value: &str, expected: &str| {
        let line = record.replace('?', value);
        let draft = Parser::at(Format::Auto, NOW_MS).parse(line.as_bytes()).unwrap().unwrap();
        assert_eq!(draft.severity.name(), expected, "{line}");
    };
    let serilog = r#"{"@t":"2023-10-10T13:55:36Z","@mt":"x","@l":"?"}"#;
    for (level, expected) in [("Error", "high"), ("Fatal", "fatal"), ("Warning", "medium")] {
        with(serilog, level, expected);
    }
    let mongodb = r#"{"t":{"$date":"2023-10-10T13:55:36.123+02:00"},"s":"?","c":"N","msg":"x"}"#;
    for (letter, expected) in [
        ("F", "fatal"),
        ("E", "high"),
        ("W", "medium"),
        ("I", "informational"),
        ("D3", "informational"),
        ("X", "unknown"),
    ] {
        with(mongodb, letter, expected);
    }
    with(r#"{"time":"2023-10-10T13:55:36Z","s":"?"}"#, "E", "unknown");
    let finding =
        r#"{"schemaVersion":"2.0","type":"x","severity":?,"createdAt":"2023-10-10T13:55:36Z"}"#;
    let bridged = r#"{"source":"aws.guardduty","detail":{"schemaVersion":"2.0","severity":?}}"#;
    for (number, expected) in [
        ("1", "low"),
        ("3.9", "low"),
        ("5", "medium"),
        ("6.9", "medium"),
        ("8", "high"),
        ("9.5", "critical"),
        ("42", "unknown"),
    ] {
        with(finding, number, expected);
        with(bridged, number, expected);
    }
    let wazuh =
        r#"{"timestamp":"2023-10-10T13:55:36.123+0200","rule":{"level":?},"agent":{"name":"a"}}"#;
    for (level, expected) in [
        ("3", "informational"),
        ("4", "low"),
        ("7", "medium"),
        ("12", "high"),
        ("15", "critical"),
        ("99", "unknown"),
    ] {
        with(wazuh, level, expected);
    }
}

#[test]
fn a_time_without_an_offset_is_marked_and_takes_a_configured_zone() {
    use forebay_events::input::Mapping;
    let line = br#"{"timestamp":"2023-10-11 14:32:52","host":"h"}"#;
    let with = |zone: Option<&str>, line: &[u8]| {
        let zone = zone.map(|zone| Mapping::zone(zone).unwrap());
        let mapping = Mapping { zone, ..Mapping::default() };
        let mut parser = Parser::at(Format::Auto, NOW_MS).with_mapping(mapping);
        described(&parser.parse(line).unwrap().unwrap())
    };
    assert_eq!(with(None, line), "assumed 2023-10-11T14:32:52Z");
    assert_eq!(with(Some("UTC"), line), "event 2023-10-11T14:32:52Z");
    assert_eq!(with(Some("+05:30"), line), "event 2023-10-11T09:02:52Z");
    assert_eq!(with(Some("-0800"), b"Feb 29 08:00:00 h su: x"), "event 2024-02-29T16:00:00Z");
    // An offset in the record precedes the zone.
    assert_eq!(
        with(Some("+05:30"), br#"{"timestamp":"2023-10-11T14:32:52Z"}"#),
        "event 2023-10-11T14:32:52Z"
    );
    for wrong in ["", "Mars/Phobos", "+25:00", "+1:2", "CETX"] {
        assert!(Mapping::zone(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_fields_of_a_stream_are_where_its_settings_say() {
    use forebay_events::input::Mapping;
    let mapping = || Mapping {
        time_field: Some("meta.seen".to_owned()),
        host_field: Some("origin".to_owned()),
        type_field: Some("what.class".to_owned()),
        ..Mapping::default()
    };
    let read = |line: &str| {
        let mut parser = Parser::at(Format::Auto, NOW_MS).with_mapping(mapping());
        let draft = parser.parse(line.as_bytes()).unwrap().unwrap();
        format!("{}|{}|{}", described(&draft), draft.host, draft.kind)
    };
    assert_eq!(
        read(
            r#"{"timestamp":"2020-01-01T00:00:00Z","meta":{"seen":1697034772},"host":"a","origin":"b","what.class":"c"}"#
        ),
        "event 2023-10-11T14:32:52Z|b|c"
    );
    // Without the field, what is recognised counts; a value that is no time is none.
    assert_eq!(
        read(r#"{"timestamp":"2020-01-01T00:00:00Z","host":"a"}"#),
        "event 2020-01-01T00:00:00Z|a|"
    );
    assert_eq!(read(r#"{"timestamp":"2020-01-01T00:00:00Z","meta.seen":"soon"}"#), "received||");
    assert_eq!(
        read("meta.seen=1697034772 origin=b time=2020-01-01T00:00:00Z"),
        "event 2023-10-11T14:32:52Z|b|"
    );
    let source = Parser::at(Format::Auto, NOW_MS).parse(b"{}").unwrap().unwrap().time_source;
    assert_eq!(source, TimeSource::Unknown);
}
