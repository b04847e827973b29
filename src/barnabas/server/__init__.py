"""The broker process: where the parts are joined and the wire meets them."""
