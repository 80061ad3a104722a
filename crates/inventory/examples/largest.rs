//! Indexes the files below a directory, and prints its largest directories.
//!
//! `cargo run -p forebay-inventory --example largest -- DIR [COUNT]`

use std::error::Error;
use std::sync::Arc;

use forebay_base::bytes::ByteSize;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_inventory::builder::{Monitor, Options, build};
use forebay_inventory::index::{Index, SortBy};
use forebay_inventory::object::Classes;
use forebay_inventory::source::{Settings, open};

#[expect(clippy::print_stdout, reason = "an example prints what it found")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let dir = words.next().ok_or("name a directory")?;
    let count = words.next().map_or(Ok(10), |text| text.parse())?;

    let classes = Arc::new(Classes::new());
    let source = open(&[format!("fs:{dir}").parse()?], &Settings::new(Arc::clone(&classes)))?;
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let to = tempfile::tempdir()?;
    let to = to.path().join("files.idx");
    let built = build(&fs, &*source, &classes, &to, &Options::default(), &Monitor::default())?;
    println!("{} files, {}, {} directories", built.objects, ByteSize(built.bytes), built.prefixes);

    let index = Index::open(&to)?;
    for found in index.root()?.top(b"", SortBy::Bytes, count, None)? {
        let total = found.node.total()?;
        let prefix = String::from_utf8_lossy(&found.prefix);
        println!("{:>16} {:>9} {prefix}", ByteSize(total.bytes).to_string(), total.objects);
    }
    Ok(())
}
