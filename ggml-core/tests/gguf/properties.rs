//! Random files: written files read back equal, and random bytes never cause a panic.

use super::{Raw, exercise, sample};
use ggml_core::DType;
use ggml_core::gguf::{Array, GgufFile, GgufWriter, Metadata, TensorData, Value};
use ggml_core::mapped::MappedBytes;
use proptest::prelude::*;

fn values() -> impl Strategy<Value = Value> {
    let text = || proptest::collection::vec(any::<u8>(), 0..12);
    let arrays = prop_oneof![
        proptest::collection::vec(any::<i32>(), 0..9).prop_map(|v| Array::from(v.as_slice())),
        proptest::collection::vec(any::<u64>(), 0..9).prop_map(|v| Array::from(v.as_slice())),
        proptest::collection::vec(any::<f32>(), 0..9).prop_map(|v| Array::from(v.as_slice())),
        proptest::collection::vec(any::<bool>(), 0..9).prop_map(|v| Array::from(v.as_slice())),
        proptest::collection::vec(text(), 0..9).prop_map(Array::texts),
    ];
    let nested = proptest::collection::vec(arrays.boxed(), 0..4).prop_map(|v| Array::nested(&v).unwrap());
    prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        text().prop_map(|t| Value::from(t.as_slice())),
        nested.prop_map(Value::from),
    ]
}

/// Generates type, extents (`ne[0]` in blocks) and the source of the data.
fn tensors() -> impl Strategy<Value = Vec<(DType, Vec<usize>, u8)>> {
    let all: Vec<DType> = ggml_core::dtype::DTYPES.iter().map(|i| i.dtype).collect();
    let one = (proptest::sample::select(all), proptest::collection::vec(1..4usize, 1..5), 0..3u8);
    proptest::collection::vec(one, 0..6)
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(
        pairs in proptest::collection::btree_map("[a-z._é]{1,12}", values(), 0..8),
        tensors in tensors(),
        alignment in proptest::sample::select(vec![None, Some(8u32), Some(64), Some(8192)]),
    ) {
        let mut metadata = Metadata::new();
        pairs.into_iter().for_each(|(key, value)| { metadata.insert(key, value); });
        alignment.map(|a| metadata.insert("general.alignment", a));
        let mut w = GgufWriter::new();
        w.set_all(&metadata).unwrap();
        let mut expected = Vec::new();
        for (i, (dtype, mut ne, how)) in tensors.into_iter().enumerate() {
            ne[0] *= dtype.block();
            let bytes = dtype.row_bytes(ne.iter().product()).unwrap();
            let data: Vec<u8> = (0..bytes).map(|b| (b * 31 + i) as u8).collect();
            let copy = data.clone();
            let given: TensorData<'_> = match how {
                0 => data.clone().into(),
                1 => MappedBytes::from(data.clone()).into(),
                _ => TensorData::stream(move |sink| copy.chunks(7).try_for_each(|piece| sink.put(piece))),
            };
            w.tensor(format!("t{i}"), dtype, &ne, given).unwrap();
            expected.push((dtype, ne, data));
        }
        let file = GgufFile::from_bytes(w.to_bytes().unwrap()).unwrap();
        exercise(&file);
        prop_assert_eq!(file.metadata(), &metadata);
        let read: Vec<_> = file
            .tensors()
            .iter()
            .map(|t| (t.dtype, t.shape().to_vec(), file.data(t).unwrap().to_vec()))
            .collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn random_bytes_are_harmless(tail in proptest::collection::vec(any::<u8>(), 0..512), n in 0..4u64, m in 0..4u64) {
        let _ = GgufFile::from_bytes(tail.as_slice()).map(|f| exercise(&f));
        let _ = Raw::header(3, n, m).bytes(&tail).open().map(|f| exercise(&f));
    }

    #[test]
    fn random_changes_are_harmless(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<proptest::sample::Index>(),
        truncate in proptest::bool::weighted(0.2),
    ) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = GgufFile::from_bytes(bytes).map(|f| exercise(&f));
    }
}
