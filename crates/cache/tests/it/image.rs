//! An image of a running cache opens with every write that was acknowledged before, whatever snapshots are taken meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_base::clock::ManualClock;
use forebay_base::fs::RealFs;
use forebay_base::image::{Image, ImageList};
use forebay_cache::persist::PersistOptions;
use forebay_cache::resp::{Proto, Reply};
use forebay_cache::{Cache, CacheOptions};

fn open(dir: &Path) -> Cache {
    let persist = PersistOptions {
        durability: "os".parse().unwrap(),
        segment_size: 64 << 10,
        ..PersistOptions::default()
    };
    let options = CacheOptions { dir: Some(dir.to_owned()), persist, ..CacheOptions::default() };
    Cache::open(Arc::new(RealFs), Arc::new(ManualClock::new(1_000_000)), &options).unwrap()
}

fn run(cache: &Cache, words: &[&[u8]]) -> Vec<u8> {
    let mut session = cache.engine().inner_session();
    let mut out = Reply::new(Proto::Resp2);
    cache.engine().execute(&mut session, words, &mut out);
    out.take()
}

/// Copies an image as a backup and its restoration do.
fn copy(image: &Path, to: &Path) {
    for file in ImageList::open(image).unwrap() {
        let file = file.unwrap();
        let mut bytes = std::fs::read(image.join("files").join(&file.path)).unwrap();
        bytes.truncate(usize::try_from(file.bytes).unwrap());
        bytes.resize(usize::try_from(file.size).unwrap(), 0);
        let path = to.join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn an_image_has_what_was_acknowledged_before_though_snapshots_trim_the_log() {
    const IMAGES: u64 = 3;
    let dir = tempfile::tempdir().unwrap();
    let cache = open(&dir.path().join("cache"));
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut before = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let value = [b'v'; 2_000];
            while !stop.load(Ordering::Acquire) {
                let number = written.load(Ordering::Acquire) + 1;
                let key = format!("key {}", number % 60).into_bytes();
                let text = [number.to_string().as_bytes(), b" ", &value].concat();
                assert_eq!(run(&cache, &[b"SET", &key, &text]), b"+OK\r\n");
                written.store(number, Ordering::Release);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                assert_eq!(run(&cache, &[b"SAVE"]), b"+OK\r\n");
            }
        });
        for at in 0..IMAGES {
            while written.load(Ordering::Acquire) < (at + 1) * 40 {
                std::thread::yield_now();
            }
            before.push(written.load(Ordering::Acquire));
            let path = dir.path().join(format!("image-{at}"));
            let mut image = Image::create(dir.path(), &path).unwrap();
            cache.image(&mut image).unwrap();
            image.finish().unwrap();
        }
        stop.store(true, Ordering::Release);
    });
    for (at, before) in before.iter().enumerate() {
        let to = dir.path().join(format!("copy-{at}"));
        copy(&dir.path().join(format!("image-{at}")), &to);
        let mut damage = Vec::new();
        let found = &mut |text| damage.push(text);
        forebay_cache::check(&RealFs, &to.join("cache"), found).unwrap();
        assert!(damage.is_empty(), "{damage:?}");
        let copied = open(&to.join("cache"));
        for number in before.saturating_sub(59).max(1)..=*before {
            let key = format!("key {}", number % 60).into_bytes();
            let value = run(&copied, &[b"GET", &key]);
            let value = String::from_utf8_lossy(&value);
            let found = value.split(['\n', ' ']).nth(1).and_then(|text| text.parse::<u64>().ok());
            assert!(found >= Some(number), "{number} of {before}: {found:?}");
        }
    }
}
