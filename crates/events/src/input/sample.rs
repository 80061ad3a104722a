//! Synthetic log records that resemble real ones, the same for the same seed: for tests and
//! measurements.
//!
//! Addresses, machines, ports and identifiers vary as in a network of some hundred machines, a few
//! of which produce most records; times increase with jitter. Nothing else about them is based on
//! measurements.

use super::Format;

/// When the records begin: 2017-07-14 15:00:00 UTC, in microseconds.
const START_US: u64 = 1_500_044_400_000_000;
/// Number of machines.
const MACHINES: u64 = 400;
const SERVICES: [(&str, u16, &str); 8] = [
    ("ssl", 443, "ShADadFf"),
    ("dns", 53, "Dd"),
    ("http", 80, "ShADadfF"),
    ("ssh", 22, "ShAdDaFf"),
    ("ntp", 123, "Dd"),
    ("smb", 445, "ShADadFfR"),
    ("ldap", 389, "ShADdaFf"),
    ("-", 8443, "S"),
];
const STATES: [&str; 5] = ["SF", "SF", "S0", "RSTO", "REJ"];
const USERS: [&str; 6] = ["alice", "bob", "carol", "svc-backup", "svc-deploy", "root"];
const ROLES: [&str; 4] = ["ws", "db", "web", "fs"];
const SIGNATURES: [(&str, u32, u8); 4] = [
    ("ET POLICY curl User-Agent Outbound", 2_013_028, 2),
    ("ET SCAN Suspicious inbound to PostgreSQL port 5432", 2_010_939, 2),
    ("ET MALWARE Possible beacon with fixed interval", 2_027_390, 1),
    ("SURICATA STREAM excessive retransmissions", 2_210_054, 3),
];

/// An endless sequence of records of one format; for [`Format::Auto`] a mix of all others.
#[derive(Debug, Clone)]
pub struct Samples {
    format: Format,
    state: u64,
    now_us: u64,
}

/// What a record is about.
struct Scene {
    seconds: u64,
    micros: u64,
    machine: u64,
    client: [u8; 4],
    client_port: u64,
    server: [u8; 4],
    service: (&'static str, u16, &'static str),
    user: &'static str,
    size: u64,
}

impl Samples {
    /// The records of `seed`.
    #[must_use]
    pub fn new(format: Format, seed: u64) -> Self {
        Self { format, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), now_us: START_US }
    }

    /// Appends the next record to `out`, without a line end, and returns its format.
    pub fn next_into(&mut self, out: &mut Vec<u8>) -> Format {
        let format = match self.format {
            Format::Auto => self.pick(&Format::ALL[1..]),
            format => format,
        };
        // Rows need a header: an endless sequence of lines has none.
        let format = if format == Format::W3c { Format::Text } else { format };
        let scene = self.scene();
        let text = match format {
            Format::Zeek => self.zeek(&scene),
            Format::Suricata => self.suricata(&scene),
            Format::Ocsf => self.ocsf(&scene),
            Format::Cef => self.cef(&scene),
            Format::Leef => self.leef(&scene),
            Format::Syslog => self.syslog(&scene),
            Format::Auto | Format::Ndjson => self.ndjson(&scene),
            Format::Clf => self.clf(&scene),
            Format::Kv => self.kv(&scene),
            Format::W3c | Format::Text => self.text(&scene),
            Format::Windows => self.windows(&scene),
            Format::Raw => self.raw(&scene),
        };
        out.extend_from_slice(text.as_bytes());
        format
    }

    /// The next record.
    #[must_use]
    pub fn next_line(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        self.next_into(&mut out);
        out
    }

    /// The next random number (SplitMix64).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random() % limit
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap_or_default()]
    }

    /// A number below `limit`, small ones far more often.
    fn skewed(&mut self, limit: u64) -> u64 {
        let most = self.below(limit) + 1;
        let most = self.below(most) + 1;
        self.below(most)
    }

    #[expect(clippy::cast_possible_truncation, reason = "bytes of a number")]
    fn scene(&mut self) -> Scene {
        self.now_us += 20 + self.skewed(4_000);
        // Records come a little out of order.
        let when = self.now_us - self.skewed(2_000);
        let machine = self.skewed(MACHINES);
        let server = self.skewed(2_000);
        let inside = self.below(4) > 0;
        Scene {
            seconds: when / 1_000_000,
            micros: when % 1_000_000,
            machine,
            client: [10, 14, (machine >> 6) as u8, (machine & 63) as u8 * 4 + 3],
            client_port: 32_768 + self.below(28_000),
            server: match inside {
                true => [10, 20, (server >> 8) as u8, server as u8],
                false => [203, 0, (server >> 8) as u8 + 100, server as u8],
            },
            service: self.pick(&SERVICES),
            user: self.pick(&USERS),
            size: self.skewed(200_000) + 40,
        }
    }

    /// A connection's identifier as Zeek writes it.
    fn uid(&mut self) -> String {
        const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let letters = (0..17).map(|_| char::from(self.pick(LETTERS)));
        std::iter::once('C').chain(letters).collect()
    }

    fn zeek(&mut self, scene: &Scene) -> String {
        let Scene { seconds, micros, client_port, size, .. } = scene;
        let (service, port, history) = scene.service;
        let (uid, client, server) = (self.uid(), ip(scene.client), ip(scene.server));
        let (state, got) = (self.pick(&STATES), self.skewed(900_000));
        let (duration, packets) = (self.skewed(30_000_000), size / 700 + 2);
        let proto = if matches!(port, 53 | 123) { "udp" } else { "tcp" };
        let service = match service {
            "-" => String::new(),
            name => format!(r#""service":"{name}","#),
        };
        let got_packets = got / 1_100 + 1;
        format!(
            r#"{{"_path":"conn","_system_name":"sensor-{:02}","ts":{seconds}.{micros:06},"uid":"{uid}","id.orig_h":"{client}","id.orig_p":{client_port},"id.resp_h":"{server}","id.resp_p":{port},"proto":"{proto}",{service}"duration":{}.{:06},"orig_bytes":{size},"resp_bytes":{got},"conn_state":"{state}","local_orig":true,"local_resp":{},"missed_bytes":0,"history":"{history}","orig_pkts":{packets},"orig_ip_bytes":{},"resp_pkts":{got_packets},"resp_ip_bytes":{},"tunnel_parents":[]}}"#,
            scene.machine % 3 + 1,
            duration / 1_000_000,
            duration % 1_000_000,
            scene.server[0] == 10,
            size + packets * 40,
            got + got_packets * 40,
        )
    }

    fn suricata(&mut self, scene: &Scene) -> String {
        let Scene { micros, client_port, size, .. } = scene;
        let (service, port, _) = scene.service;
        let time = civil(scene.seconds);
        let (client, server) = (ip(scene.client), ip(scene.server));
        let flow = self.random() >> 12;
        let head = format!(
            r#"{{"timestamp":"{time}.{micros:06}+0000","flow_id":{flow},"in_iface":"eth{}","#,
            scene.machine % 2
        );
        let ends = format!(
            r#""src_ip":"{client}","src_port":{client_port},"dest_ip":"{server}","dest_port":{port},"proto":"TCP","#
        );
        if self.below(8) == 0 {
            let (signature, id, severity) = self.pick(&SIGNATURES);
            return format!(
                r#"{head}"event_type":"alert",{ends}"alert":{{"action":"allowed","gid":1,"signature_id":{id},"rev":5,"signature":"{signature}","category":"Potentially Bad Traffic","severity":{severity}}},"app_proto":"{service}","flow":{{"pkts_toserver":4,"pkts_toclient":3,"bytes_toserver":{size},"bytes_toclient":902}}}}"#
            );
        }
        let (answer, back) = (self.skewed(900_000), self.below(200) + 1);
        format!(
            r#"{head}"event_type":"flow",{ends}"app_proto":"{service}","flow":{{"pkts_toserver":{},"pkts_toclient":{back},"bytes_toserver":{size},"bytes_toclient":{answer},"start":"{time}.{micros:06}+0000","age":{},"state":"closed","reason":"timeout","alerted":false}}}}"#,
            size / 700 + 2,
            self.below(60),
        )
    }

    fn ocsf(&mut self, scene: &Scene) -> String {
        let (user, host, client) = (scene.user, host(scene.machine), ip(scene.client));
        let id = uuid_like(self.random(), self.random());
        let failed = self.below(10) == 0;
        let (status, severity) = if failed { (2, 3) } else { (1, 1) };
        format!(
            r#"{{"activity_id":1,"category_uid":3,"class_name":"Authentication","class_uid":3002,"device":{{"hostname":"{host}","ip":"10.20.0.{}","type_id":1}},"message":"Logon of {user}","metadata":{{"product":{{"name":"Directory","vendor_name":"Example"}},"uid":"{id}","version":"1.3.0"}},"severity_id":{severity},"src_endpoint":{{"ip":"{client}","port":{}}},"status_id":{status},"time":{}{:03},"type_uid":300201,"user":{{"name":"{user}","uid":"S-1-5-21-{}"}}}}"#,
            scene.machine % 250 + 1,
            scene.client_port,
            scene.seconds,
            scene.micros / 1_000,
            1_000 + scene.user.len() as u64 * 37,
        )
    }

    fn cef(&mut self, scene: &Scene) -> String {
        let (client, server) = (ip(scene.client), ip(scene.server));
        let severity = self.below(11);
        let action = self.pick(&["accept", "accept", "accept", "drop"]);
        format!(
            "CEF:0|Example|Gateway|7.2|{}|Traffic {action}|{severity}|rt={}{:03} src={client} spt={} dst={server} dpt={} proto=TCP act={action} dvchost=fw-{} in={} out={} cs1Label=rule cs1=lan to any suser={}",
            100 + scene.service.1 % 7,
            scene.seconds,
            scene.micros / 1_000,
            scene.client_port,
            scene.service.1,
            scene.machine % 4,
            scene.size,
            self.skewed(90_000),
            scene.user,
        )
    }

    fn leef(&mut self, scene: &Scene) -> String {
        let (client, server) = (ip(scene.client), ip(scene.server));
        format!(
            "LEEF:1.0|Example|Proxy|3.1|Request{}|devTime={}{:03}\tsrc={client}\tdst={server}\tsrcPort={}\tdstPort={}\tsev={}\tusrName={}\tsrcBytes={}",
            self.pick(&["Allowed", "Allowed", "Denied"]),
            scene.seconds,
            scene.micros / 1_000,
            scene.client_port,
            scene.service.1,
            self.below(10) + 1,
            scene.user,
            scene.size,
        )
    }

    fn syslog(&mut self, scene: &Scene) -> String {
        let (user, host, client) = (scene.user, host(scene.machine), ip(scene.client));
        let (time, micros, port) = (civil(scene.seconds), scene.micros, scene.client_port);
        let process = 800 + self.below(30_000);
        match self.below(3) {
            0 => format!(
                "<86>1 {time}.{micros:06}Z {host} sshd {process} - - Accepted publickey for {user} from {client} port {port} ssh2: ED25519 SHA256:{:016x}{:016x}",
                self.random(),
                self.random(),
            ),
            1 => format!(
                "<30>1 {time}.{micros:06}Z {host} systemd 1 - - Started session-{process}.scope - Session {process} of User {user}.",
            ),
            _ => format!(
                "<38>1 {time}.{micros:06}Z {host} sshd {process} - - Failed password for invalid user {user} from {client} port {port} ssh2",
            ),
        }
    }

    fn ndjson(&mut self, scene: &Scene) -> String {
        let level = self.pick(&["info", "info", "info", "warn", "error"]);
        let request = uuid_like(self.random(), self.random());
        format!(
            r#"{{"timestamp":"{}.{:06}Z","level":"{level}","host":"{}","logger":"shop.orders","type":"request","client_ip":"{}","request":"{request}","path":"/orders/{}","status":{},"ms":{},"user":"{}"}}"#,
            civil(scene.seconds),
            scene.micros,
            host(scene.machine),
            ip(scene.client),
            scene.size,
            self.pick(&[200, 200, 200, 201, 404, 500]),
            self.skewed(900),
            scene.user,
        )
    }

    fn clf(&mut self, scene: &Scene) -> String {
        format!(
            "{} - {} [{}] \"GET /orders/{} HTTP/1.1\" {} {}",
            ip(scene.client),
            scene.user,
            formatted(scene.seconds, "%d/%b/%Y:%H:%M:%S +0000"),
            scene.size,
            self.pick(&[200, 200, 200, 304, 404]),
            self.skewed(90_000),
        )
    }

    fn kv(&mut self, scene: &Scene) -> String {
        format!(
            "date={} time={} devname=\"fw-{}\" eventtime={}{:06}000 tz=\"+0000\" type=\"traffic\" level=\"{}\" srcip={} srcport={} dstip={} dstport={} action=\"{}\" sentbyte={}",
            formatted(scene.seconds, "%Y-%m-%d"),
            formatted(scene.seconds, "%H:%M:%S"),
            scene.machine % 4,
            scene.seconds,
            scene.micros,
            self.pick(&["notice", "notice", "warning"]),
            ip(scene.client),
            scene.client_port,
            ip(scene.server),
            scene.service.1,
            self.pick(&["accept", "accept", "deny"]),
            scene.size,
        )
    }

    fn windows(&mut self, scene: &Scene) -> String {
        format!(
            "<Event xmlns=\"http://schemas.microsoft.com/win/2004/08/events/event\"><System><Provider Name=\"Example-Auditing\"/><EventID>{}</EventID><Level>0</Level><TimeCreated SystemTime=\"{}.{:06}0Z\"/><Channel>Security</Channel><Computer>{}</Computer></System><EventData><Data Name=\"TargetUserName\">{}</Data><Data Name=\"IpAddress\">{}</Data></EventData></Event>",
            self.pick(&[4624, 4624, 4634, 4625]),
            civil(scene.seconds),
            scene.micros,
            host(scene.machine),
            scene.user,
            ip(scene.client),
        )
    }

    fn text(&mut self, scene: &Scene) -> String {
        format!(
            "{} [{}] {}#0: job {} of {}, client: {}",
            formatted(scene.seconds, "%Y/%m/%d %H:%M:%S"),
            self.pick(&["error", "warn", "notice"]),
            800 + self.below(30_000),
            self.random() >> 40,
            scene.user,
            ip(scene.client),
        )
    }

    fn raw(&mut self, scene: &Scene) -> String {
        format!(
            "worker-{} job {} done in {} ms, {} bytes",
            scene.machine % 16,
            self.random() >> 40,
            self.skewed(2_000),
            scene.size
        )
    }
}

fn ip([a, b, c, d]: [u8; 4]) -> String {
    format!("{a}.{b}.{c}.{d}")
}

fn host(machine: u64) -> String {
    format!("{}-{machine:04}", ROLES[(machine % 4) as usize])
}

fn uuid_like(high: u64, low: u64) -> String {
    uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
        .into_uuid()
        .to_string()
}

/// `2017-07-14T15:00:00`.
fn civil(seconds: u64) -> String {
    formatted(seconds, "%Y-%m-%dT%H:%M:%S")
}

fn formatted(seconds: u64, format: &str) -> String {
    let time = jiff::Timestamp::from_second(seconds.cast_signed()).unwrap_or_default();
    jiff::tz::Offset::UTC.to_datetime(time).strftime(format).to_string()
}
