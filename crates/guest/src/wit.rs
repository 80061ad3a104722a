//! The bindings of `wit/connector.wit`, one module for each world; what the worlds share is there once.
#![expect(missing_docs, reason = "generated; the file it is made of has the descriptions")]

pub mod source_world {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "source-connector",
        generate_all,
        // Some are those of other worlds.
        generate_unused_types: true,
        pub_export_macro: true,
        export_macro_name: "export_source",
        default_bindings_module: "forebay_guest::wit::source_world",
        runtime_path: "::wit_bindgen::rt",
    });
}

pub mod destination_world {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "destination-connector",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_destination",
        default_bindings_module: "forebay_guest::wit::destination_world",
        runtime_path: "::wit_bindgen::rt",
        with: {
            "forebay:connector/types@0.1.0": crate::wit::types,
            "forebay:connector/host@0.1.0": crate::wit::host,
            "forebay:connector/sockets@0.1.0": crate::wit::sockets,
            "forebay:connector/state@0.1.0": crate::wit::state,
            "forebay:connector/metrics@0.1.0": crate::wit::metrics,
        },
    });
}

pub mod transform_world {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "transform-connector",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_transform",
        default_bindings_module: "forebay_guest::wit::transform_world",
        runtime_path: "::wit_bindgen::rt",
        with: {
            "forebay:connector/types@0.1.0": crate::wit::types,
            "forebay:connector/host@0.1.0": crate::wit::host,
            "forebay:connector/metrics@0.1.0": crate::wit::metrics,
        },
    });
}

pub mod change_source_world {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "change-source-connector",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_change_source",
        default_bindings_module: "forebay_guest::wit::change_source_world",
        runtime_path: "::wit_bindgen::rt",
        with: {
            "forebay:connector/types@0.1.0": crate::wit::types,
            "forebay:connector/host@0.1.0": crate::wit::host,
            "forebay:connector/sockets@0.1.0": crate::wit::sockets,
        },
    });
}

pub mod change_target_world {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "change-target-connector",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_change_target",
        default_bindings_module: "forebay_guest::wit::change_target_world",
        runtime_path: "::wit_bindgen::rt",
        with: {
            "forebay:connector/types@0.1.0": crate::wit::types,
            "forebay:connector/host@0.1.0": crate::wit::host,
            "forebay:connector/sockets@0.1.0": crate::wit::sockets,
            "forebay:connector/changes@0.1.0": crate::wit::changes,
        },
    });
}

pub use change_source_world::exports::forebay::connector::change_source;
pub use change_source_world::forebay::connector::changes;
pub use change_target_world::exports::forebay::connector::change_target;
pub use destination_world::exports::forebay::connector::destination;
pub use source_world::exports::forebay::connector::source;
pub use source_world::forebay::connector::{host, metrics, outlet, sockets, state, types};
pub use transform_world::exports::forebay::connector::transform;
