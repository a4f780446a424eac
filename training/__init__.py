"""How the embedded decision model is made: data, network, training, calibration, export."""
