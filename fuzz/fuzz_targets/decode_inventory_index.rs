//! Any bytes as a file of an inventory index: records, lists, the table's directory, `index.json`.
#![no_main]

use forebay_inventory::format::meta::Meta;
use forebay_inventory::format::order::Lists;
use forebay_inventory::format::record::Record;
use forebay_inventory::format::table::read_directory;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Checksums keep most inputs out of what is behind them, so they are made right here.
    let sum = |data: &[u8]| forebay_base::checksum::crc32c(data).to_le_bytes();
    let mut record = data.to_vec();
    if let Some(&last) = data.last() {
        let covered = data.len().saturating_sub(1 + usize::from(last & 0x7F));
        record.extend_from_slice(&sum(&data[covered..]));
    }
    for bytes in [data, &record] {
        if let Some(record) = Record::read(bytes) {
            assert!(record.start <= bytes.len() as u64 && record.subtree.size <= record.start);
            if let Some(numbers) = record.numbers() {
                let total = numbers.total(u64::MAX);
                assert_eq!(record.total(u64::MAX), Some(total));
                if let Some(histograms) = record.histograms(&numbers) {
                    let objects = histograms.sizes.iter().flat_map(|(_, sizes)| sizes.iter());
                    let objects = objects.map(|(_, amount)| u128::from(amount.objects));
                    assert!(objects.sum::<u128>() >= u128::from(total.objects));
                }
            }
        }
    }
    for lists in [1, 2].into_iter().filter_map(|version| Lists::read(data, version)) {
        assert!(lists.size() <= data.len());
        assert!(lists.by_name().is_none_or(|list| list.len() <= data.len()));
        assert!(lists.by_billed().is_none_or(|list| list.len() <= data.len()));
    }
    if let Some(firsts) = read_directory(data) {
        assert!(firsts.is_sorted());
    }
    drop(Meta::from_bytes(data));
});
