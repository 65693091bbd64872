//! Which folder is meant: a path says where to look, an identity says whether it is still that one.

use posse_core::workspace::folder::*;

#[test]
fn a_number_that_is_used_again_is_another_folder() {
    let one = FolderId { device: 1, inode: 7, born: Some(5) };
    assert!(one.is(&FolderId { device: 2, ..one }), "mounted again");
    assert!(!one.is(&FolderId { born: Some(6), ..one }), "made anew");
    assert!(!one.is(&FolderId { inode: 8, ..one }));
    let ageless = FolderId { born: None, ..one };
    assert!(ageless.is(&one) && !ageless.is(&FolderId { device: 2, ..ageless }));
}
