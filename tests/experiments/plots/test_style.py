import matplotlib.pyplot as plt

from dmlmc.experiments.plots import style


def test_figures_are_saved_as_pdf_and_png(tmp_path):
    style.save_figure(plt.figure(), tmp_path / "new", "name")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"name.pdf", "name.png"}
